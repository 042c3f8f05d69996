package local

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
)

// shared is an emulator in which nothing is deployed: PAYHOOK_E2E=ministack runs the tests that use it alone.
var shared struct {
	once     sync.Once
	emulator *Emulator
	err      error
}

// emulated returns the configuration of clients of the emulator.
func emulated(t *testing.T) aws.Config {
	t.Helper()
	if os.Getenv("PAYHOOK_E2E") == "" {
		t.Skip("an end-to-end test, which needs an emulator: make test-e2e, or PAYHOOK_E2E=ministack")
	}
	shared.once.Do(func() {
		state, p := filepath.Join(top(t), ".local", "ministack-test"), NewProgress(os.Stdout)
		if _, shared.err = Prepare(t.Context(), top(t), state, p); shared.err == nil {
			shared.emulator, shared.err = StartEmulator(context.Background(), top(t), state, nil)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.emulator.AWS
}

// top is the folder of go.mod.
func top(t *testing.T) string {
	t.Helper()
	folder, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// newFunction creates a function whose program is a script.
func newFunction(t *testing.T, program string) (client *lambda.Client, name string) {
	t.Helper()
	config := emulated(t)
	name = "function-" + uuid.New().String()
	role, err := iam.NewFromConfig(config).CreateRole(t.Context(), &iam.CreateRoleInput{
		RoleName: &name,
		AssumeRolePolicyDocument: aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow",` +
			`"Principal":{"Service":"lambda.amazonaws.com"},"Action":"sts:AssumeRole"}]}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	var code bytes.Buffer
	archive := zip.NewWriter(&code)
	header := &zip.FileHeader{Name: "bootstrap"}
	header.SetMode(0o755)
	file, err := archive.CreateHeader(header)
	if err == nil {
		_, err = io.WriteString(file, program)
	}
	if err = errors.Join(err, archive.Close()); err != nil {
		t.Fatal(err)
	}
	client = lambda.NewFromConfig(config)
	if _, err := client.CreateFunction(t.Context(), &lambda.CreateFunctionInput{
		FunctionName: &name, Role: role.Role.Arn, Runtime: lambdatypes.RuntimeProvidedal2023,
		Handler: aws.String("bootstrap"), Code: &lambdatypes.FunctionCode{ZipFile: code.Bytes()},
	}); err != nil {
		t.Fatal(err)
	}
	return client, name
}
