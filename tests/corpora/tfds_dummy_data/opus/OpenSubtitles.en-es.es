¿Dónde está la estación?
Es tarde.
