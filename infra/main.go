// Command infra is the CDK app: it builds the functions, and writes the
// CloudFormation template of one stack that holds everything.
//
// It guarantees that the template is written only when every setting is right:
// settings come from the CDK context (package settings lists them), and all that
// are wrong, missing or unknown are reported on standard error at once, with exit
// status 1. The CDK CLI starts it, from the top of the repository, as cdk.json
// says.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

func main() {
	os.Exit(run(os.Stderr))
}

func run(stderr io.Writer) int {
	defer closeCDK()
	if err := synth(stderr); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// closeCDK ends the process in which the CDK runs. jsii waits for that twice, and
// now and then says on standard error that the second time found no process.
func closeCDK() {
	if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		os.Stderr = null
	}
	jsii.Close()
}

func synth(stderr io.Writer) (err error) {
	// The CDK reports what is wrong with a stack by panicking with an error, and
	// the place in our code that it points at helps nobody who deploys. What is a
	// mistake of this program keeps its stack trace.
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

	// AutoSynth would write a template on the way out, although the settings are
	// wrong.
	app := awscdk.NewApp(&awscdk.AppProps{AutoSynth: jsii.Bool(false)})
	stacks, err := readSettings(app)
	if err != nil {
		return err
	}
	top, err := moduleRoot()
	if err != nil {
		return err
	}
	// In a folder of its own: another synthesis of this project may be running.
	folder, err := buildFolder(top)
	if err != nil {
		return err
	}
	// The CDK has copied the packages by then.
	defer os.RemoveAll(folder)
	programs := filepath.Join(folder, "programs")
	if err := buildFunctions(top, programs, architecture(stacks[0])); err != nil {
		return err
	}
	for i, conf := range stacks {
		packages, err := packageFunctions(programs, filepath.Join(folder, conf.StackName), conf.Endpoint.Truststore)
		if err != nil {
			return err
		}
		var scope constructs.Construct = app
		if i > 0 {
			scope = constructs.NewConstruct(app, jsii.String(conf.StackName))
		}
		stack := newStack(scope, conf, func(function string) awslambda.Code {
			return awslambda.Code_FromAsset(jsii.String(packages[function]), nil)
		})
		if conf.Local {
			leaveOut(stack, stderr)
		}
	}
	app.Synth(nil)
	return nil
}

func moduleRoot() (string, error) {
	top, err := os.Getwd()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(top, "functions")); err != nil {
		return "", errors.New("no folder functions here: start the CDK from the top of the repository")
	}
	return top, nil
}

// buildFolder makes a folder for one build.
func buildFolder(top string) (string, error) {
	builds := filepath.Join(top, ".build")
	if err := os.MkdirAll(builds, 0o755); err != nil {
		return "", err
	}
	return os.MkdirTemp(builds, "functions-")
}

// architecture is what the functions are built for: arm64 in the cloud; an
// emulator runs them as processes of this machine.
func architecture(conf settings.Deployment) string {
	if conf.Local {
		return runtime.GOARCH
	}
	return "arm64"
}
