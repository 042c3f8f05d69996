// Package names defines the names that the deployment and the functions share:
// environment variables, outputs of the stack, attributes of the tables and
// metrics. Both sides use these constants, so a name cannot differ between them.
package names

// Methods returns the HTTP methods of webhooks. The interface does not specify the one that the
// service uses (section 4.3).
func Methods() []string { return []string{"POST", "PUT", "PATCH"} }
