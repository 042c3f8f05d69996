package acceptance

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"payhook.example/infra/local"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/settings"
)

func TestOnlyNamesOfTheRunAreOfTheRun(t *testing.T) {
	for _, c := range []struct {
		name, id string
		want     bool
	}{
		{"PayhookAcceptance-abcd2345", "abcd2345", true},
		{"PayhookAcceptance-abcd2345-Service", "abcd2345", true},
		{"payhookacceptance-abcd2345-parking-1x", "abcd2345", true},
		{"PayhookAcceptance-abcd2345x", "abcd2345", false},
		{"PayhookAcceptance-other234", "abcd2345", false},
		{"Payhook", "abcd2345", false},
		{"PayhookAcceptance-", "", false},
		{"PayhookAcceptance-*", "*", false},
		{"", "abcd2345", false},
	} {
		if got := isOfRun(c.name, c.id); got != c.want {
			t.Errorf("%q is of the run %q: %t", c.name, c.id, got)
		}
	}
	if id := newRunID(); !runID.MatchString(id) {
		t.Errorf("the id of a run is %q", id)
	}
	if _, err := Cleanup(t.Context(), Target{}, "", nil); err == nil {
		t.Error("something is removed without the id of a run")
	}
}

func TestTheNameInAnARN(t *testing.T) {
	for text, want := range map[string]string{
		"arn:aws:s3:::payhookacceptance-x":                             "payhookacceptance-x",
		"arn:aws:dynamodb:us-east-1:1:table/PayhookAcceptance-x-L":     "PayhookAcceptance-x-L",
		"arn:aws:logs:us-east-1:1:log-group:PayhookAcceptance-x-L":     "PayhookAcceptance-x-L",
		"arn:aws:secretsmanager:us-east-1:1:secret:Credentials-aB-cD":  "Credentials-aB-cD",
		"arn:aws:lambda:us-east-1:1:function:PayhookAcceptance-x-Hook": "PayhookAcceptance-x-Hook",
		"not an ARN": "",
	} {
		if got := nameOf(text); got != want {
			t.Errorf("the name in %s is %q", text, got)
		}
	}
}

func TestARowIsPassedOnlyIfItWasRight(t *testing.T) {
	const need local.Need = "something"
	answer := func(actual string, right bool, err error) func(context.Context) (string, bool, error) {
		return func(context.Context) (string, bool, error) { return actual, right, err }
	}
	for name, c := range map[string]struct {
		check  check
		status Status
	}{
		"right":               {check{do: answer("yes", true, nil)}, Passed},
		"not right":           {check{do: answer("no", false, nil)}, Wrong},
		"an error":            {check{do: answer("", true, errors.New("failed"))}, Wrong},
		"measured":            {check{do: answer("5", false, nil), measured: true}, Measured},
		"an error, measured":  {check{do: answer("5", true, errors.New("failed")), measured: true}, Wrong},
		"what the target has": {check{do: answer("yes", true, nil), needs: []local.Need{"else"}}, Passed},
		"what the target lacks": {check{do: func(context.Context) (string, bool, error) {
			t.Error("a row was shown without what it needs")
			return "yes", true, nil
		}, needs: []local.Need{"else", need}}, NotShown},
	} {
		row := c.check.show(t.Context(), map[local.Need]string{need: "it has none"})
		if row.Status != c.status || (row.Status == NotShown) != (row.Reason == "it has none") {
			t.Errorf("%s: %+v", name, row)
		}
	}
}

func TestRowsOfTheTableKeepTheirResult(t *testing.T) {
	rows := rowsOf([]local.Result{
		{Right: true, What: "a", Got: "200", Expected: "200", ExpectedArrived: map[string]int{"released": 1},
			Arrived: map[string]int{"released": 1}},
		{What: "b", Got: "500", Expected: "200"},
		{What: "c", Expected: "413", NotShown: "no limits"},
	})
	if rows[0].Status != Passed || rows[1].Status != Wrong || rows[2].Status != NotShown ||
		rows[2].Reason != "no limits" {
		t.Errorf("the rows are %+v", rows)
	}
	if rows[0].Actual != "200; behind rules: released 1" {
		t.Errorf("the actual result is %q", rows[0].Actual)
	}
}

func TestAReportIsRightOnlyIfSomethingWasShownAndNothingIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		statuses []Status
		err      error
		right    bool
	}{
		"passed":           {[]Status{Passed, Measured, NotShown}, nil, true},
		"wrong":            {[]Status{Passed, Wrong}, nil, false},
		"nothing shown":    {[]Status{NotShown, Measured}, nil, false},
		"the run failed":   {[]Status{Passed}, errors.New("failed"), false},
		"nothing was done": {nil, nil, false},
	} {
		report := (&Run{ID: "abcd2345"}).newReport()
		for _, s := range c.statuses {
			report.add("Section", "", []Row{{What: "row", Status: s}})
		}
		report.finish()
		if report.Conclude(c.err); report.Right != c.right {
			t.Errorf("%s: right is %t", name, report.Right)
		}
	}
}

func TestTheReportIsWrittenForPeopleAndForPrograms(t *testing.T) {
	report := (&Run{ID: "abcd2345"}).newReport()
	report.add("Webhooks", "About webhooks.", []Row{{What: "a | b", Expected: "200", Actual: "500\n<x>", Status: Wrong},
		{What: "c", Topic: "Topic two", Status: NotShown, Reason: "no alarms"}})
	report.add("Alarms", "", []Row{{What: "the alarm a", Status: NotShown, Reason: "no alarms"},
		{What: "the alarm b", Status: NotShown, Reason: "no alarms"}})
	report.Assets, report.Left = []string{"bucket/key"}, []string{"arn:aws:s3:::left"}
	report.finish()
	report.Conclude(nil)
	folder := t.TempDir()
	if err := report.WriteFiles(folder); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Result: not as expected", "1 wrong", `| **wrong** | a \| b | 200 | 500 &lt;x> |`,
		"not shown: no alarms", "About webhooks.", "| Webhooks | 0 | 1 | 0 | 1 |", "**Not shown**: no alarms.",
		"- not shown: the alarm a", "### Topic two", "`bucket/key`", "`arn:aws:s3:::left`"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the report does not have %q:\n%s", want, text)
		}
	}
	if text, err = os.ReadFile(filepath.Join(folder, "report.json")); err != nil {
		t.Fatal(err)
	}
	var read Report
	if err := json.Unmarshal(text, &read); err != nil || read.Right || read.Counts[Wrong] != 1 ||
		read.Sections[0].Rows[1].Reason != "no alarms" {
		t.Errorf("the report is %+v, %v", read, err)
	}
}

// A reader learns what each section is about.
func TestEverySectionIsExplained(t *testing.T) {
	d := &deployed{run: &Run{}}
	all := d.sections()
	for _, s := range all {
		if abouts[s.title] == "" {
			t.Errorf("%s is not explained", s.title)
		}
	}
	if len(all) != len(abouts) {
		t.Errorf("%d sections and %d explanations", len(all), len(abouts))
	}
}

func TestTheLimitIsFound(t *testing.T) {
	for _, limit := range []int{10, 11, 57, 99} {
		upTo := func(_ context.Context, n int) (bool, error) { return n <= limit, nil }
		got, err := search(t.Context(), 10, 100, upTo)
		if err != nil || got != limit {
			t.Errorf("the limit is %d, and found is %d, %v", limit, got, err)
		}
	}
	nothing := func(context.Context, int) (bool, error) { return false, nil }
	if _, err := search(t.Context(), 10, 100, nothing); err == nil {
		t.Error("nothing is accepted, and a limit is found")
	}
}

func TestValuesAreComparedExactly(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"1234567890.10", "1234567890.1", true}, {"1E3", "1000", true}, {"-0", "0", true},
		{"9007199254740993", "9007199254740992", false}, {"0.123456789012345678", "0.12345678901234568", false},
	} {
		if got := sameNumber(c.a, c.b); got != c.same {
			t.Errorf("%s and %s are the same: %t", c.a, c.b, got)
		}
	}
	if !sameJSON(`{"a":null}`, `{ "a" : null }`) || sameJSON(`{"a":null}`, `{}`) || sameJSON(`"é"`, `"e"`) {
		t.Error("values are compared wrongly")
	}
	for _, amount := range amounts {
		if event := withMember("amount", amount); !bytes.Contains(event, []byte(`"amount":`+amount+`,`)) {
			t.Errorf("the event is %s", event)
		}
	}
}

func TestSettingsThatARunChoosesAreRejected(t *testing.T) {
	f := flags{settings: map[string]string{}}
	for _, text := range []string{"baseUrl=https://x.example", "stackName=Mine", "local=true", "nonsense=1", "x",
		"truststore=x.pem", "clientCertPins=00"} {
		if err := f.addSetting(text); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
	if err := f.addSetting("webhookMemory=640"); err != nil || f.settings["webhookMemory"] != "640" {
		t.Errorf("the settings are %v, %v", f.settings, err)
	}
}

func TestAnEndpointNeedsWhatItTakesToReachIt(t *testing.T) {
	for _, c := range []struct {
		settings string
		emulated bool
		right    bool
	}{
		{"", false, true}, {"", true, true},
		{"authentication=both", false, false},
		{"authentication=both domainName=x.example", false, false},
		{"authentication=both domainName=x.example hostedZoneId=Z1", false, true},
		{"authentication=mtls domainName=x.example hostedZoneId=Z1", true, false},
		{"domainName=x.example", false, false}, {"domainName=x.example hostedZoneId=Z1", false, true},
		{"domainName=x.example hostedZoneId=Z1", true, false},
	} {
		f := flags{settings: map[string]string{}}
		for text := range strings.FieldsSeq(c.settings) {
			if err := f.addSetting(text); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.checkEndpoint(c.emulated); (err == nil) != c.right {
			t.Errorf("%q, emulated %t: %v", c.settings, c.emulated, err)
		}
	}
}

// The settings that a run chooses for client certificates are ones that cdk synth accepts.
func TestTheSettingsForClientCertificatesAreValid(t *testing.T) {
	r := New(Target{}, Options{State: t.TempDir(), Settings: map[string]string{"authentication": "both",
		"domainName": "hook.bank.example", "hostedZoneId": "Z0123456789ABCDEFGHIJ"}})
	conf := r.settings()
	identity, certificates, err := r.newIdentity(conf)
	if err != nil {
		t.Fatal(err)
	}
	conf["baseUrl"], conf["authUrl"] = "https://x.example", "https://x.example"
	parsed, err := settings.ParseDeployment(func(key string) (string, bool) {
		text, ok := conf[key]
		return text, ok
	}, slices.Collect(maps.Keys(conf)))
	if err != nil || !parsed.Webhook.UsesMTLS() {
		t.Errorf("%+v, %v", parsed.Endpoint, err)
	}
	for _, c := range []tls.Certificate{identity.Certificate(), certificates.Next, certificates.Expiring,
		certificates.Renewed, certificates.Revoked} {
		if pin := clientcert.PinOf(c.Leaf); !strings.Contains(conf["clientCertPins"], hex.EncodeToString(pin[:])) {
			t.Errorf("a certificate of the table is not pinned in %s", conf["clientCertPins"])
		}
	}
	if pin := clientcert.PinOf(certificates.Unpinned.Leaf); strings.Contains(conf["clientCertPins"],
		hex.EncodeToString(pin[:])) {
		t.Error("the certificate that must not be pinned is")
	}
}
