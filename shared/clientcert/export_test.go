package clientcert

// What follows is what it is named after, for tests.
var (
	IntermediatesIn = intermediatesIn
	Twin            = twin
)
