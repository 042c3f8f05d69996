// Package payhook contains the constructs of Payhook: all resources of one stack.
//
// It guarantees that it writes a template only if every setting is valid. Settings come
// from the CDK context (package settings lists them).
package payhook

import (
	"errors"
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

// Synthesize builds the functions and writes the CloudFormation template with the
// settings of the CDK context. Its error lists every invalid, missing and unknown
// setting. It writes to stderr what an emulator does not support.
func Synthesize(stderr io.Writer) (err error) {
	// The CDK reports the problems of a stack with a panic whose value is an error. The
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
	stacks, err := readSettings(app)
	if err != nil {
		return err
	}
	top, err := moduleRoot()
	if err != nil {
		return err
	}
	// It has its own folder, because another synthesis of this project can be running.
	folder, err := buildFolder(top)
	if err != nil {
		return err
	}
	// The CDK has copied the packages at that point.
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
			removeUnsupported(stack, stderr)
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
		return "", errors.New("there is no folder functions here: start the CDK in the top folder of the repository")
	}
	return top, nil
}

// buildFolder creates a folder for one build.
func buildFolder(top string) (string, error) {
	builds := filepath.Join(top, ".build")
	if err := os.MkdirAll(builds, 0o755); err != nil {
		return "", err
	}
	return os.MkdirTemp(builds, "functions-")
}

// architecture returns the architecture of the functions: arm64 in the cloud, and that
// of this machine for an emulator, which runs them as local processes.
func architecture(conf settings.Deployment) string {
	if conf.Local {
		return runtime.GOARCH
	}
	return "arm64"
}

// Close ends the process in which the CDK runs. jsii waits for this process twice, and
// sometimes reports on standard error that the process did not exist the second time.
func Close() {
	if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		os.Stderr = null
	}
	jsii.Close()
}
