// Command infra is the CDK app: one stack with one [payhook.Payhook], whose settings come
// from the CDK context.
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
	closeCDK()
	os.Exit(status)
}

// synthesize writes the template.
func synthesize() (err error) {
	// The CDK and the construct report problems with a panic whose value is an error. The
	// stack trace does not help a user who deploys. Other panics are bugs and keep their
	// stack trace.
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
	stack := awscdk.NewStack(app, jsii.String("Payhook"), &awscdk.StackProps{
		StackName:   jsii.String("Payhook"),
		Description: jsii.String("Payhook: publishes authenticated payment webhooks as events on a bus"),
		// Termination protection prevents an accidental deletion of the stack and its URL.
		TerminationProtection: jsii.Bool(true),
	})
	payhook.New(stack, jsii.String("Default"), &payhook.Props{})
	app.Synth(nil)
	return nil
}

// closeCDK ends the process in which the CDK runs. jsii waits for this process twice, and
// sometimes reports on standard error that the process did not exist the second time.
func closeCDK() {
	if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		os.Stderr = null
	}
	jsii.Close()
}
