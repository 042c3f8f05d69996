package clientcert

// IntermediatesIn is intermediatesIn, for tests.
var IntermediatesIn = intermediatesIn
