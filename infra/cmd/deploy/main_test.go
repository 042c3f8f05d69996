package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	identity = `<GetCallerIdentityResponse><GetCallerIdentityResult><Account>111122223333</Account>` +
		`</GetCallerIdentityResult></GetCallerIdentityResponse>`
	assumed = `<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>temporary</AccessKeyId>` +
		`<SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>` +
		`<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>`
	required = "-c baseUrl=https://a.example -c authUrl=https://b.example -c tokenManagerId=m"
)

// answer answers as the STS API does: with the identity, or with the code of an error.
func answer(t *testing.T, code string) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.FormValue("Action") == "AssumeRole" && r.FormValue("TokenCode") == "123456":
			fmt.Fprint(w, assumed)
			return
		case code == "":
			fmt.Fprint(w, identity)
			return
		}
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `<ErrorResponse><Error><Code>%s</Code></Error></ErrorResponse>`, code)
	}))
	t.Cleanup(server.Close)
	t.Setenv("AWS_ENDPOINT_URL_STS", server.URL)
}

// write writes a file of the project, which is the current folder.
func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// clone is a project in which the CDK CLI is installed, on a machine with the AWS profile p.
func clone(t *testing.T) {
	for _, name := range []string{"AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
		"AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"} {
		t.Setenv(name, "")
	}
	t.Chdir(t.TempDir())
	write(t, "config", "[profile p]\nregion = eu-west-1\naws_access_key_id = id\naws_secret_access_key = secret\n"+
		"[profile mfa]\nsource_profile = p\nregion = eu-west-1\nrole_arn = arn:aws:iam::1:role/r\nmfa_serial = m\n")
	t.Setenv("AWS_CONFIG_FILE", "config")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("NO_PROXY", "127.0.0.1")
	answer(t, "")
	write(t, "cdk.json", `{"app": "x", "context": {"@aws-cdk/core:x": true, "eventSource": "cdk.json"}}`)
	write(t, "infra/environments/full.json", `{"profile": "p", "region": "eu-north-1", "settings": {
		"baseUrl": "https://a.example",
		"authUrl": "https://b.example", "tokenManagerId": "m", "stackName": "Full", "webhookConcurrency": 7}}`)
	write(t, "infra/environments/empty.json", `{}`)
	write(t, "infra/environments/wrong.json", `{"regoin": "x", "settings": {"baseurl": "x", "tracing": true}}`)
	write(t, "infra/environments/elsewhere.json", `{"profile": "none"}`)
	write(t, "infra/package-lock.json", "{}")
	write(t, "infra/node_modules/.package-lock.json", "{}")
}

func keys(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
}

func TestTheCDKIsCalledForThePlaceThatWasShown(t *testing.T) {
	settings := "-c authUrl=https://b.example -c baseUrl=https://a.example -c stackName=Full -c tokenManagerId=m " +
		"-c webhookConcurrency=7"
	for name, test := range map[string]struct {
		args  string // with - for no environment
		setup func(t *testing.T)
		shown string
		cdk   string
	}{
		"environment": {args: "deploy full", shown: "account 111122223333, region eu-north-1, stack Full\n",
			cdk: "deploy --profile p --region eu-north-1 " + settings},
		"the command line wins": {args: "diff full --profile p --region eu-west-3 -c stackName=Other",
			shown: "account 111122223333, region eu-west-3, stack Other\n",
			cdk:   "diff --profile p " + settings + " --region eu-west-3 -c stackName=Other"},
		"variables": {args: "deploy - --require-approval never " + required,
			setup: func(t *testing.T) { keys(t); t.Setenv("AWS_REGION", "eu-west-2") },
			shown: "account 111122223333, region eu-west-2, stack Payhook\n",
			cdk:   "deploy --region eu-west-2 --require-approval never " + required},
		"the region of a profile": {args: "deploy - " + required,
			setup: func(t *testing.T) { keys(t); t.Setenv("AWS_PROFILE", "p") },
			shown: "account 111122223333, region eu-west-1, stack Payhook\n",
			cdk:   "deploy --profile p --region eu-west-1 " + required},
		"bootstrap needs no settings": {args: "bootstrap - --profile p",
			shown: "account 111122223333, region eu-west-1, stack Payhook\n",
			cdk:   "bootstrap aws://111122223333/eu-west-1 --profile p --region eu-west-1"},
		"bootstrap elsewhere": {args: "bootstrap full --trust 1 aws://444455556666/us-east-1",
			shown: "account 111122223333, region eu-north-1, stack Full\n",
			cdk:   "bootstrap --profile p --region eu-north-1 --trust 1 aws://444455556666/us-east-1"},
		"synth needs no AWS": {args: "synth - " + required, cdk: "synth " + required},
		"destroy": {args: "destroy full", shown: "account 111122223333, region eu-north-1, stack Full\n" +
			fmt.Sprintf(retained, "Full", "eu-north-1", " --profile p"),
			cdk: "destroy --profile p --region eu-north-1 " + settings},
		"settings of the user": {args: "synth -",
			setup: func(t *testing.T) {
				write(t, "home/.cdk.json", `{"context": {"baseUrl": "https://a.example", "eventSource": "aws.x"}}`)
				write(t, "cdk.context.json",
					`{"authUrl": "https://b.example", "tokenManagerId": "m", "cli-telemetry": false}`)
			}, cdk: "synth"},
	} {
		t.Run(name, func(t *testing.T) {
			clone(t)
			if test.setup != nil {
				test.setup(t)
			}
			var out strings.Builder
			c := &call{out: &out, home: "home"}
			args := strings.Fields(test.args)
			if args[1] == "-" {
				args[1] = ""
			}
			if err := c.run(t.Context(), args); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(c.args, " "); got != test.cdk || out.String() != test.shown {
				t.Errorf("cdk %s\nwant %s\n%s\nwant %s", got, test.cdk, &out, test.shown)
			}
		})
	}
}

// AWS takes a code once, so the CDK must not ask for it again.
func TestTheCDKHasTheCredentialsOfACode(t *testing.T) {
	for _, args := range []string{"deploy full --profile mfa --ci", "deploy full --profile=mfa --ci"} {
		clone(t)
		c := &call{out: &strings.Builder{}, code: func() (string, error) { return "123456", nil }}
		if err := c.run(t.Context(), strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(c.args, " "); strings.Contains(got, "profile") || !strings.HasSuffix(got, " --ci") {
			t.Errorf("cdk %s", got)
		}
		got := strings.Join(c.variables([]string{"AWS_PROFILE=p", "A=b"}), " ")
		if want := "A=b CDK_DISABLE_VERSION_CHECK=1 AWS_ACCESS_KEY_ID=temporary AWS_SECRET_ACCESS_KEY=s " +
			"AWS_SESSION_TOKEN=t"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestNothingIsStartedIfSomethingIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		args  string
		setup func(t *testing.T)
		want  []string
	}{
		"nothing is configured": {args: "deploy -", want: []string{"no AWS region is set: set AWS_REGION, or",
			"no AWS credentials: set AWS_PROFILE, or", "baseUrl: is required", `ARGS="-c NAME=VALUE"`}},
		"an empty environment": {args: "deploy empty", want: []string{
			`AWS_REGION or "region" in infra/environments/empty.json`,
			`AWS_PROFILE or "profile" in infra/environments/empty.json`,
			`Set each in infra/environments/empty.json under "settings"`}},
		"expired": {args: "deploy full", setup: func(t *testing.T) { answer(t, "ExpiredToken") },
			want: []string{"the AWS credentials have expired: sign in again, for example with aws sso login " +
				"--profile p"}},
		"not accepted": {args: "deploy full", setup: func(t *testing.T) { answer(t, "InvalidClientTokenId") },
			want: []string{"AWS does not accept the credentials: InvalidClientTokenId"}},
		"AWS does not answer": {args: "deploy full", setup: func(t *testing.T) {
			t.Setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
		}, want: []string{"AWS does not answer"}},
		"no such profile": {args: "deploy elsewhere",
			want: []string{"this machine has no AWS profile none, which infra/environments/elsewhere.json names"}},
		"no such environment": {args: "deploy ful", want: []string{
			`there is no environment "ful"; did you mean full?; infra/environments has: elsewhere, empty, full, ` +
				"wrong"}},
		"no environment": {args: "deploy ../environments/full", want: []string{"there is no environment"}},
		"unknown keys": {args: "synth wrong", want: []string{"infra/environments/wrong.json:",
			"regoin: no such member; did you mean region?",
			"settings.baseurl: no such setting; did you mean baseUrl?"}},
		"a wrong setting": {args: "synth full -c alarmSilnce=1h -c eventSource=aws.x", want: []string{
			"alarmSilnce: no such setting; did you mean alarmSilence?", "eventSource: must"}},
		"a Region without function URLs": {args: "deploy full --region me-central-1",
			want: []string{"domainName: is required in me-central-1"}},
		"a template for such a Region": {args: "synth full --region me-central-1",
			want: []string{"domainName: is required in me-central-1"}},
		"a key of another account": {args: "diff full -c encryption=arn:aws:kms:eu-north-1:444455556666:key/a",
			want: []string{"encryption: must be in the account 111122223333 of the stack, not in 444455556666"}},
		"npm fails": {args: "synth full", setup: func(t *testing.T) {
			old := time.Unix(0, 0)
			if err := os.Chtimes("infra/node_modules/.package-lock.json", old, old); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", "")
		}, want: []string{"npm is not installed"}},
	} {
		t.Run(name, func(t *testing.T) {
			clone(t)
			if test.setup != nil {
				test.setup(t)
			}
			args := strings.Fields(test.args)
			if args[1] == "-" {
				args[1] = ""
			}
			c := &call{out: &strings.Builder{}, home: "home"}
			err := c.run(t.Context(), args)
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in %v", want, err)
				}
			}
		})
	}
}
