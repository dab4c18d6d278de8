"""DeePEn: fusion in the space of relative representations (arXiv 2404.12715)."""
