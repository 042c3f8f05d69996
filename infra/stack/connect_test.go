package stack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"payhook.example/shared/settings"
)

// outputs are those of the stack.
var outputs = map[string]string{
	settings.WebhookURLOutput: "https://hook.example/", settings.EventBusNameOutput: "bus-1",
	settings.LedgerTableOutput: "ledger-1", settings.KeysTableOutput: "keys-1",
	settings.ParkingBucketOutput: "parking-1", settings.LargeEventBucketOutput: "largeEvents-1",
	settings.TokenSecretOutput: "token-secret-1", settings.CredentialsSecretOutput: "credentials-1",
	settings.WebhookFunctionOutput: "webhook-1", settings.RedriveFunctionOutput: "redrive-1",
	settings.TokenFunctionOutput: "token-1", settings.WebhookLogsOutput: "webhook-logs",
	settings.RedriveLogsOutput: "redrive-logs", settings.TokenLogsOutput: "token-logs",
}

func TestMissingOutputSaysWhatToDo(t *testing.T) {
	for key := range outputs {
		if key == settings.WebhookURLOutput {
			continue // without a URL, it is no Payhook
		}
		without := maps.Clone(outputs)
		delete(without, key)
		err := (&Stack{StackName: "Payhook"}).SetOutputs(without, "")
		if err == nil || !strings.Contains(err.Error(), "stack Payhook has no output "+key+":") ||
			!strings.Contains(err.Error(), "deploy it again") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestOutputsSayWhereTheTokenIs(t *testing.T) {
	d, parameter, none := &Stack{}, maps.Clone(outputs), maps.Clone(outputs)
	delete(parameter, settings.TokenSecretOutput)
	parameter[settings.TokenParameterOutput] = "/payhook/Payhook/token"
	if err := d.SetOutputs(parameter, ""); err != nil || !d.KeepsToken() || d.TokenSecret != "" ||
		d.TokenParameter != "/payhook/Payhook/token" {
		t.Errorf("%+v, %v", d, err)
	}
	maps.DeleteFunc(none, func(key, _ string) bool {
		return strings.HasPrefix(key, "Token") || key == settings.CredentialsSecretOutput
	})
	d = &Stack{}
	if err := d.SetOutputs(none, ""); err != nil || d.KeepsToken() || len(d.Functions) != 2 || len(d.Logs) != 2 {
		t.Errorf("%+v, %v", d, err)
	}
}

// cloud answers as AWS does, over the real wire, with the outputs of one stack. A role with an MFA device takes the
// code 123456, and the token of its session says for how long it is.
func cloud(t *testing.T, outputs map[string]string) (endpoint string) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fail := func(code, message string) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, "<ErrorResponse><Error><Code>%s</Code><Message>%s</Message></Error></ErrorResponse>", code,
				message)
		}
		switch action, name := r.FormValue("Action"), r.FormValue("StackName"); {
		case action == "AssumeRole" && r.FormValue("SerialNumber") != "" && r.FormValue("TokenCode") != "123456":
			fail("AccessDenied", "")
		case action == "AssumeRole":
			fmt.Fprintf(w, `<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>a</AccessKeyId>
				<SecretAccessKey>b</SecretAccessKey><SessionToken>%s</SessionToken><Expiration>%s</Expiration>
				</Credentials></AssumeRoleResult></AssumeRoleResponse>`, r.FormValue("DurationSeconds"),
				time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		case name != "Payhook":
			fail("ValidationError", "Stack with id "+name+" does not exist")
		default:
			var list strings.Builder
			for key, value := range outputs {
				fmt.Fprintf(&list, `<member><OutputKey>%s</OutputKey><OutputValue>%s</OutputValue>
					<Description>the %[1]s</Description></member>`, key, value)
			}
			fmt.Fprintf(w, `<DescribeStacksResponse><DescribeStacksResult><Stacks><member>
				<StackName>Payhook</StackName>
				<StackId>arn:aws:cloudformation:eu-north-1:123456789012:stack/Payhook/1</StackId>
				<CreationTime>2026-01-31T12:00:00Z</CreationTime><StackStatus>CREATE_COMPLETE</StackStatus>
				<Outputs>%s</Outputs></member></Stacks></DescribeStacksResult></DescribeStacksResponse>`, &list)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// machine is a machine with these profiles and no other configuration of AWS, and nothing up on it.
func machine(t *testing.T, profiles string) {
	t.Helper()
	for _, name := range []string{"AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
		"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	home := t.TempDir()
	set(t, "HOME", home, "AWS_CONFIG_FILE", filepath.Join(home, "config"), "AWS_SHARED_CREDENTIALS_FILE", os.DevNull,
		"AWS_EC2_METADATA_DISABLED", "true", "NO_PROXY", "127.0.0.1", "AWS_MAX_ATTEMPTS", "1")
	t.Chdir(t.TempDir())
	if err := errors.Join(os.WriteFile(filepath.Join(home, "config"), []byte(profiles), 0o600),
		os.WriteFile("go.mod", []byte("module payhook.example\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// set sets variables of the environment.
func set(t *testing.T, pairs ...string) {
	for pair := range slices.Chunk(pairs, 2) {
		t.Setenv(pair[0], pair[1])
	}
}

// account sets the usual variables.
func account(t *testing.T, endpoint string) {
	set(t, "AWS_ENDPOINT_URL", endpoint, "AWS_REGION", "eu-north-1", "AWS_ACCESS_KEY_ID", "id", "AWS_SECRET_ACCESS_KEY",
		"secret")
}

func isUp(t *testing.T, s Stack) {
	t.Helper()
	s.Region = "us-east-1"
	if err := s.Write("."); err != nil {
		t.Fatal(err)
	}
}

func TestStackIsFoundWithUsualVariables(t *testing.T) {
	machine(t, "")
	account(t, cloud(t, outputs))
	if d, err := Connect(t.Context(), Stack{Region: "eu-west-3"}); err != nil || d.AWS.Region != "eu-west-3" {
		t.Error(err)
	}
	d, err := Connect(t.Context(), Stack{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(d.Name, "stack Payhook (account 123456789012, eu-north-1 at http://127.0.0.1:") {
		t.Errorf("a person would be asked about %s", d.Name)
	}
	want := Stack{StackName: "Payhook", Name: d.Name, Region: "eu-north-1", Status: "CREATE_COMPLETE",
		FullName: "Payhook", WebhookURL: "https://hook.example/", Endpoint: d.Endpoint, Version: "unknown",
		Bus:         "bus-1",
		LedgerTable: "ledger-1", KeysTable: "keys-1", ParkingBucket: "parking-1", LargeEventBucket: "largeEvents-1",
		TokenSecret: "token-secret-1", CredentialsSecret: "credentials-1", Outputs: d.Outputs,
		Functions: map[string]string{"webhook": "webhook-1", "redrive": "redrive-1", "token": "token-1"},
		Logs:      map[string]string{"webhook": "webhook-logs", "redrive": "redrive-logs", "token": "token-logs"}}
	if diff := cmp.Diff(want, *d, cmpopts.IgnoreFields(Stack{}, "AWS")); diff != "" {
		t.Error(diff)
	}
}

func TestStackOfAnotherAppHasSeveral(t *testing.T) {
	others := map[string]string{"Queue": "queue-1", "ShopWebhookUrl": "https://shop.example/",
		"ShopEventBusName":  "shop",
		"ShopTokenFunction": "shop-token", "OldLedgerTable": "old"}
	for name, test := range map[string]struct {
		ids              []string // of the constructs in the stack
		missing          string   // an output that the stack does not have
		id               string   // that is asked for
		bus, place, fail string
	}{
		"the only one": {ids: []string{"Payments"},
			bus: "Payments-bus-1", place: "Payhook_Payments in stack Payhook (account"},
		"the only one, Default": {ids: []string{"Default"}, bus: "bus-1", place: "stack Payhook (account"},
		"one of two": {ids: []string{"Payments", "Reports"}, id: "Reports",
			bus: "Reports-bus-1", place: "Payhook_Reports in stack Payhook (account"},
		"Default of two": {ids: []string{"Payments", "Default"}, id: "Default",
			bus: "bus-1", place: "stack Payhook (account"},
		"an older one": {ids: []string{"Payments", "Reports"}, missing: "ReportsKeysTable", id: "Reports",
			fail: "stack Payhook has no output ReportsKeysTable: it is older than this program; deploy it again"},
		"beside an older one": {ids: []string{"Payments", "Reports"}, missing: "ReportsKeysTable", id: "Payments",
			bus: "Payments-bus-1", place: "Payhook_Payments in stack Payhook (account"},
		"several": {ids: []string{"Reports", "Payments", "Default"},
			fail: "stack Payhook has several Payhooks: choose one with --id: Default, Payments, Reports"},
		"a wrong id": {ids: []string{"Reports", "Payments"}, id: "Shop",
			fail: "stack Payhook has no Payhook with the id Shop: choose one with --id: Payments, Reports"},
		"a wrong id for the only one": {ids: []string{"Default"}, id: "Payments",
			fail: "stack Payhook has no Payhook with the id Payments: choose one with --id: Default"},
		"none":            {fail: "stack Payhook has no Payhook: name another stack with --stack"},
		"none with an id": {id: "Shop", fail: "stack Payhook has no Payhook: name another stack with --stack"},
	} {
		t.Run(name, func(t *testing.T) {
			all := maps.Clone(others)
			for _, id := range test.ids {
				prefix, text := id, id+"-"
				if id == DefaultID {
					prefix, text = "", ""
				} else {
					all[id+settings.FullNameOutput] = "Payhook_" + id
				}
				for key, value := range outputs {
					all[prefix+key] = text + value
				}
			}
			delete(all, test.missing)
			machine(t, "")
			account(t, cloud(t, all))
			d, err := Connect(t.Context(), Stack{ID: test.id})
			if test.fail != "" {
				if err == nil || err.Error() != test.fail {
					t.Errorf("%v, want %s", err, test.fail)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d.Bus != test.bus || !strings.HasPrefix(d.Name, test.place) {
				t.Errorf("bus %s of %s", d.Bus, d.Name)
			}
		})
	}
}

func TestVariablesDoNotChangeTheLocalRun(t *testing.T) {
	machine(t, "")
	isUp(t, Stack{Endpoint: cloud(t, outputs), StackName: "Payhook"})
	account(t, "http://127.0.0.1:1")
	// Also in a folder below, which has a module of its own.
	if err := os.MkdirAll("events/client", 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir("events/client")
	if err := os.WriteFile("go.mod", []byte("module payments.example/client\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if d, err := Connect(t.Context(), Stack{Local: true}); err != nil ||
		d.Name != "stack Payhook (the local run)" {
		t.Error(err)
	}
	if _, err := Connect(t.Context(), Stack{}); err == nil {
		t.Error("the local run was used without being chosen")
	}
}

// The host name of a function URL of the emulator does not resolve.
func TestOutputsHaveAURLThatWorksHere(t *testing.T) {
	machine(t, "")
	emulator := cloud(t, outputs)
	isUp(t, Stack{Endpoint: emulator, StackName: "Run", WebhookURL: "http://127.0.0.1:1/"})
	d, err := Connect(t.Context(), Stack{Local: true, StackName: "Payhook"})
	if err != nil || len(d.Outputs) != len(outputs) {
		t.Fatalf("%v, %+v", err, d)
	}
	if got, want := d.Outputs[len(outputs)-1], (Output{settings.WebhookURLOutput, emulator + "/_aws/lambda-url/hook/",
		"the WebhookUrl"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestUnreachablePlaceSaysWhatToDo(t *testing.T) {
	for name, test := range map[string]struct {
		place   func(t *testing.T)
		target  Stack
		message []string
	}{
		"no such stack": {func(t *testing.T) { account(t, cloud(t, outputs)) }, Stack{StackName: "Other"},
			[]string{"no stack Other in eu-north-1", "--stack", "--region"}},
		"nothing answers": {func(t *testing.T) { account(t, "http://127.0.0.1:1") }, Stack{},
			[]string{"cannot be read", "AWS_PROFILE"}},
		"no credentials": {func(t *testing.T) { t.Setenv("AWS_REGION", "eu-north-1") }, Stack{},
			[]string{"no AWS credentials", "AWS_PROFILE", "--local"}},
		"no region": {func(t *testing.T) { set(t, "AWS_ACCESS_KEY_ID", "id", "AWS_SECRET_ACCESS_KEY", "secret") },
			Stack{}, []string{"no AWS region", "AWS_REGION"}},
		"nothing up": {func(*testing.T) {}, Stack{Local: true}, []string{"nothing is up in /", "make up"}},
		"no clone": {func(t *testing.T) { t.Chdir("/") }, Stack{Local: true},
			[]string{"nothing is up: / is in no clone of Payhook"}},
		"up, and killed": {func(t *testing.T) { isUp(t, Stack{Endpoint: "http://127.0.0.1:1"}) }, Stack{Local: true},
			[]string{"has ended, and was not ended with make down", "make up"}},
		"another's profile": {func(t *testing.T) { t.Setenv("AWS_PROFILE", "nobody") }, Stack{},
			[]string{"AWS configuration", "nobody"}},
		"a profile that does not exist": {func(*testing.T) {}, Stack{Profile: "nobody"}, []string{"nobody"}},
	} {
		t.Run(name, func(t *testing.T) {
			machine(t, "")
			test.place(t)
			_, err := Connect(t.Context(), test.target)
			if err == nil {
				t.Fatal("it connected")
			}
			for _, text := range test.message {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q is not in %v", text, err)
				}
			}
		})
	}
}

// ops is the profile of a role.
const ops = "[profile base]\naws_access_key_id = id\naws_secret_access_key = secret\n[profile ops]\n" +
	"region = eu-north-1\nsource_profile = base\nrole_arn = arn:aws:iam::123456789012:role/ops\n"

// A role can need an MFA code, which is asked for once, however many calls follow. Ctrl-C ends the question.
func TestAProfileCanAskForACode(t *testing.T) {
	const arn = "arn:aws:iam::123456789012:mfa/ann"
	const serial = "mfa_serial = " + arn
	for name, test := range map[string]struct{ role, duration, code, fails string }{
		"typed":          {serial, "3600", "123456", ""},
		"two hours":      {serial + "\nduration_seconds = 7200", "7200", "123456", ""},
		"without a code": {"", "900", "not asked", ""},
		"a wrong code":   {serial, "", "000000", "AccessDenied"},
		"nobody":         {serial, "", "", "nobody is there"},
		"Ctrl-C":         {serial, "", "^C", context.Canceled.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			machine(t, ops+test.role)
			endpoint := cloud(t, outputs)
			set(t, "AWS_ENDPOINT_URL", endpoint, "AWS_ENDPOINT_URL_STS", endpoint)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			asked := 0
			d, err := Connect(ctx, Stack{Profile: "ops", Ask: func(question string) (string, error) {
				if asked++; question != "MFA code of "+arn+":" {
					t.Error(question)
				}
				switch test.code {
				case "":
					return "", errors.New("nobody is there")
				case "^C":
					cancel()
					<-t.Context().Done()
				}
				return test.code, nil
			}})
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Error(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := d.AWS.Credentials.Retrieve(t.Context())
			if err != nil || got.SessionToken != test.duration || asked != min(1, len(test.role)) {
				t.Errorf("for %s s, asked %d times, %v", got.SessionToken, asked, err)
			}
		})
	}
}

// A session that has expired is named with the command that begins a new one.
func TestAnExpiredSessionNamesTheCommand(t *testing.T) {
	const session = "[sso-session bank]\nsso_region = eu-north-1\nsso_start_url = https://bank.awsapps.example/start\n"
	const account = "region = eu-north-1\nsso_account_id = 123456789012\nsso_role_name = ops\n"
	const role = "region = eu-north-1\nrole_arn = arn:aws:iam::123456789012:role/ops\nsource_profile = "
	for name, test := range map[string]struct{ config, profile, want string }{
		"session": {session + "[profile ops]\nsso_session = bank\n" + account, "ops", "aws sso login --profile ops"},
		"of one profile": {"[profile ops]\nsso_region = eu-north-1\nsso_start_url = https://a.example/start\n" +
			account, "ops", "aws sso login --profile ops"},
		"of a role": {session + "[profile base]\nsso_session = bank\n" + account + "[profile ops]\n" + role + "base",
			"ops", "aws sso login --profile base"},
		"the default profile": {session + "[default]\nsso_session = bank\n" + account, "",
			"aws sso login --profile default"},
		"a name with a space": {session + "[profile o's x]\nsso_session = bank\n" + account, "o's x",
			`aws sso login --profile 'o'\''s x'`},
		"of the console": {"[profile ops]\nregion = eu-north-1\nlogin_session = arn:aws:iam::123456789012:user/ann\n",
			"ops", "aws login --profile ops"},
	} {
		t.Run(name, func(t *testing.T) {
			machine(t, test.config)
			_, err := Connect(t.Context(), Stack{Profile: test.profile})
			if err == nil || !strings.HasSuffix(err.Error(), "\nif the session has expired: "+test.want) {
				t.Error(err)
			}
		})
	}
}
