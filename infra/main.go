// Command infra is the CDK app. It builds the functions and writes the CloudFormation
// template of one stack that contains all resources.
//
// It guarantees that it writes the template only if every setting is valid. Settings
// come from the CDK context (package settings lists them). All invalid, missing and
// unknown settings are reported together on standard error, with exit status 1. The CDK
// CLI starts it in the top folder of the repository, as defined in cdk.json.
package main

import (
	"fmt"
	"os"

	"payhook.example/infra/payhook"
)

func main() {
	status := 0
	if err := payhook.Synthesize(os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	payhook.Close()
	os.Exit(status)
}
