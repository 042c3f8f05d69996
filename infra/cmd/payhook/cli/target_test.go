package cli

import (
	"bytes"
	"errors"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"payhook.example/infra/deployment"
)

// No command goes to AWS instead of a local run that was killed, and none to a local run
// if a flag names a place in AWS.
func TestTheLocalRunIsChosenOnlyWithoutFlags(t *testing.T) {
	emulator := httptest.NewServer(nil)
	t.Cleanup(emulator.Close)
	t.Setenv("AWS_REGION", "eu-west-1")
	for name, test := range map[string]struct {
		endpoint   string // of the local run; "" for none
		target     deployment.Deployment
		local      bool
		said, fail string
	}{
		"up":           {emulator.URL, deployment.Deployment{}, true, "this is the local run; --stack, ", ""},
		"one of two":   {emulator.URL, deployment.Deployment{ID: "A"}, true, "this is the local run; --stack, ", ""},
		"it is named":  {emulator.URL, deployment.Deployment{Local: true}, true, "", ""},
		"stack":        {emulator.URL, deployment.Deployment{Stack: "A"}, false, "", ""},
		"region":       {emulator.URL, deployment.Deployment{Region: "eu-west-1"}, false, "", ""},
		"profile":      {emulator.URL, deployment.Deployment{Profile: "p"}, false, "", ""},
		"nothing":      {"", deployment.Deployment{}, false, "", ""},
		"killed":       {"http://127.0.0.1:1", deployment.Deployment{}, false, "", "--profile chooses AWS"},
		"killed, AWS":  {"http://127.0.0.1:1", deployment.Deployment{Stack: "A"}, false, "", ""},
		"a killed one": {"http://127.0.0.1:1", deployment.Deployment{Local: true}, true, "", ""}, // connecting fails
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			err := os.WriteFile("go.mod", []byte("module payhook.example\n"), 0o600)
			if test.endpoint != "" {
				err = errors.Join(err, (&deployment.Deployment{Endpoint: test.endpoint}).Write("."))
			}
			if err != nil {
				t.Fatal(err)
			}
			var said bytes.Buffer
			err = (&Program{Err: &said}).Choose(t.Context(), &test.target)
			if (err == nil) != (test.fail == "") || err != nil && !strings.Contains(err.Error(), test.fail) {
				t.Error(err)
			}
			if test.target.Local != test.local || !strings.HasPrefix(said.String(), test.said) ||
				test.said == "" && said.Len() > 0 {
				t.Errorf("local: %t, %q", test.target.Local, &said)
			}
		})
	}
}

func TestTheLocalRunIsNamedOnlyIfAWSCouldBeMeant(t *testing.T) {
	emulator := httptest.NewServer(nil)
	t.Cleanup(emulator.Close)
	t.Chdir(t.TempDir())
	if err := errors.Join(os.WriteFile("go.mod", []byte("module payhook.example\n"), 0o600),
		(&deployment.Deployment{Endpoint: emulator.URL}).Write(".")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		region, profile, endpoint string
		named                     bool
	}{
		{"", "", "", false},
		{"eu-west-1", "", "", true},
		{"eu-west-1", "", "http://127.0.0.1:1", true},
		{"eu-west-1", "", emulator.URL, false}, // after eval "$(payhook local env)"
		{"", "missing", "", true},
	} {
		for name, value := range map[string]string{"AWS_REGION": test.region, "AWS_PROFILE": test.profile,
			"AWS_ENDPOINT_URL": test.endpoint, "AWS_DEFAULT_REGION": "", "AWS_DEFAULT_PROFILE": "",
			"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull} {
			t.Setenv(name, value)
		}
		var said bytes.Buffer
		target := deployment.Deployment{}
		if err := (&Program{Err: &said}).Choose(t.Context(), &target); err != nil || !target.Local ||
			(said.Len() > 0) != test.named {
			t.Errorf("%+v: %v, local: %t, %q", test, err, target.Local, &said)
		}
	}
}

func TestHintsNameTheTarget(t *testing.T) {
	for want, target := range map[string]deployment.Deployment{
		"payhook status":                                    {},
		"payhook status --local --id A":                     {Local: true, ID: "A"},
		"payhook status --stack S --region R --profile dev": {Stack: "S", Region: "R", Profile: "dev"},
	} {
		if got := (&Program{}).Hint(&target, "status"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	p := &Program{Name: ".local/bin/payhook"}
	if got := p.Hint(&deployment.Deployment{}, "status"); got != ".local/bin/payhook status" {
		t.Error(got)
	}
}
