//! The bodies of the fuzz targets: each takes any bytes and must return, having checked what can be checked of rubbish.
