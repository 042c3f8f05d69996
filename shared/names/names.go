// Package names defines the names that the deployment and the functions share:
// environment variables, outputs of the stack, attributes of the tables and
// metrics. Both sides use these constants, so a name cannot differ between them.
package names
