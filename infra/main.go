// Command infra is the CDK app: one stack with one [payhook.Payhook], whose settings are in
// infra/settings.json and, with -c env=NAME, in infra/environments/NAME.json.
//
// It writes the template only if every setting is valid. All invalid, missing and unknown
// settings are reported together on standard error, with exit status 1. The CDK CLI
// starts it in the top folder of the repository, as defined in cdk.json.
package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/infra/payhook"
)

func main() {
	status := 0
	if err := synthesize(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	// jsii waits for the process of the CDK twice, and sometimes reports on standard error
	// that the process did not exist the second time.
	if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		os.Stderr = null
	}
	jsii.Close()
	os.Exit(status)
}

// synthesize writes the template. The CDK and Payhook report problems with a panic whose value is an error. Its stack
// trace does not help a user who deploys. Other panics are bugs and keep their stack trace.
func synthesize() (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case runtime.Error:
			panic(p)
		case error:
			err = p
		default:
			panic(p)
		}
	}()

	// AutoSynth would write a template at exit, even if the settings are invalid.
	app := awscdk.NewApp(&awscdk.AppProps{AutoSynth: jsii.Bool(false)})
	props, stackProps, err := payhook.ReadSettings(app, "infra")
	if err != nil {
		return err
	}
	stackProps.Description = jsii.String("Payhook: publishes authenticated payment webhooks as events on a bus")
	stack := awscdk.NewStack(app, jsii.String("Payhook"), stackProps)
	payhook.New(stack, jsii.String("Default"), props)
	app.Synth(nil)
	return nil
}
