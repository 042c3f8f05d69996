package local

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"payhook.example/infra/stack"
	"payhook.example/shared/bus"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

// shared is the emulator of TestDeployedStack, or an empty one: PAYHOOK_E2E=ministack runs the other tests alone.
var shared struct {
	once     sync.Once
	emulator *Emulator
	stop     func()
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
			shared.stop = func() { shared.emulator.Stop() }
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
	role, err := callIAM(t.Context(), config, "CreateRole", name, url.Values{"AssumeRolePolicyDocument": {
		`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"lambda.amazonaws.com"},` +
			`"Action":"sts:AssumeRole"}]}`}})
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
		FunctionName: &name, Role: &role.Role, Runtime: lambdatypes.RuntimeProvidedal2023,
		Handler: aws.String("bootstrap"), Code: &lambdatypes.FunctionCode{ZipFile: code.Bytes()},
	}); err != nil {
		t.Fatal(err)
	}
	return client, name
}

// attack is what a page does: it reads and writes in every way that a page has. It returns what it could
// read of the answers.
const attack = `(async ({read, write, post}) => {
	const got = [];
	const tryTo = async (...request) => {
		try {
			const answer = await fetch(...request);
			got.push(answer.status + " " + await answer.text());
		} catch {}
	};
	const add = (name, properties) => {
		const element = Object.assign(document.createElement(name), properties);
		document.documentElement.append(element);
		return element;
	};
	await tryTo(read);
	await tryTo(read, {mode: "no-cors"});
	await tryTo(read, {method: "OPTIONS"});
	await tryTo(write, {method: "PUT", body: "x"});
	await tryTo(post, {method: "POST", body: "{}", headers: {"Content-Type": "application/json"}});
	await tryTo(post, {method: "POST", body: "{}", mode: "no-cors"});
	await new Promise((done) => add("img", {onload: done, onerror: done, src: read}));
	await new Promise((done) => {
		add("iframe", {name: "result"}).onload = done;
		add("form", {target: "result", method: "post", enctype: "text/plain", action: post}).submit();
	});
	await new Promise((done) => {
		const socket = new WebSocket(read.replace("http", "ws"));
		socket.onopen = () => done(got.push("a socket"));
		socket.onerror = done;
	});
	return got;
})`

// Pages of another port, of another name, and of a name that resolves to 127.0.0.1 since the page was loaded.
func TestWebPageUsesNeitherTheEmulatorNorTheSimulatedService(t *testing.T) {
	config, bucket, object := emulated(t), "bucket-"+uuid.New().String(), "object"
	store := s3.NewFromConfig(config, func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := store.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket}); err != nil {
		t.Fatal(err)
	}
	put := &s3.PutObjectInput{Bucket: &bucket, Key: &object, Body: strings.NewReader("secret")}
	if _, err := store.PutObject(t.Context(), put); err != nil {
		t.Fatal(err)
	}
	service := paymenttest.NewServer(paymenttest.Options{})
	t.Cleanup(service.Close)
	key := service.Key().ID
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
	}))
	t.Cleanup(page.Close)

	ctx, end := chromedp.NewContext(t.Context(),
		chromedp.WithAllocatorOptions(chromedp.Flag("host-resolver-rules", "MAP *.test 127.0.0.1")))
	t.Cleanup(end)
	if err := chromedp.Do(ctx); errors.Is(err, exec.ErrNotFound) {
		t.Skip("there is no Chromium: install the package chromium to test with a browser")
	} else if err != nil {
		t.Fatal(err)
	}
	// Every page can sign, since the root key is known.
	ofEmulator := func(base string) map[string]string {
		config := config.Copy()
		config.BaseEndpoint = &base
		signer := s3.NewPresignClient(s3.NewFromConfig(config, func(o *s3.Options) { o.UsePathStyle = true }))
		read, errRead := signer.PresignGetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: &object})
		write, errWrite := signer.PresignPutObject(t.Context(),
			&s3.PutObjectInput{Bucket: &bucket, Key: aws.String("new")})
		if err := errors.Join(errRead, errWrite); err != nil {
			t.Fatal(err)
		}
		return map[string]string{"read": read.URL, "write": write.URL, "post": base + "/_ministack/reset"}
	}
	ofService := func(base string) map[string]string {
		path := base + "/v1/keys/" + key
		return map[string]string{"read": path, "write": path, "post": base + paymenttest.ControlPath}
	}
	visit := func(page string, urls map[string]string) {
		t.Helper()
		within, cancel := context.WithTimeout(ctx, waitTimeout)
		defer cancel()
		arguments, err := json.Marshal(urls)
		if err == nil {
			err = chromedp.Do(within, chromedp.Navigate(page))
		}
		var got []string
		if err == nil {
			got, err = chromedp.Run(within, chromedp.Evaluate[[]string](attack+"("+string(arguments)+")",
				func(p *runtime.EvaluateParams) { p.AwaitPromise = aws.Bool(true) }))
		}
		if err != nil {
			t.Fatalf("%s: %v", page, err)
		}
		for _, answer := range got {
			if !strings.HasPrefix(answer, "403 ") && answer != "0 " { // no-cors: it cannot be read
				t.Errorf("a page of %s got %q", page, answer)
			}
		}
	}
	named := func(address string) string { return strings.Replace(address, "127.0.0.1", "attacker.test", 1) }
	for base, urls := range map[string]func(base string) map[string]string{*config.BaseEndpoint: ofEmulator,
		service.URL: ofService} {
		visit(page.URL, urls(base))
		visit(named(page.URL), urls(base))
		visit(named(base), urls(named(base)))
	}
	list, err := store.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &bucket})
	if err != nil || len(list.Contents) != 1 {
		t.Errorf("the bucket has %d objects: %v", len(list.Contents), err)
	}
	if n := len(service.Requests(paymenttest.Keys)); n > 0 || service.Key().ID != key {
		t.Errorf("%d keys were read, and the key is %s, not %s", n, service.Key().ID, key)
	}
}

func TestEmulatorServesItsOwnNamesOnly(t *testing.T) {
	hosts := map[string]bool{ // and whether they are served
		"127.0.0.1": true, "127.0.0.1:1": true, "localhost:1": true, "LOCALHOST": true,
		"bucket.localhost:1": true, "a.bucket.s3.us-east-1.amazonaws.com": true, "bucket.s3.amazonaws.com": true,
		"bucket.s3.us-east-1.localhost:1": true, "id.lambda-url.us-east-1.on.aws:1": true,

		"attacker.test": false, "localhost.attacker.test": false, "127.0.0.1.nip.io": false, "127.0.0.1.:1": false,
		"localhost.": false, "0.0.0.0:1": false, "127.0.0.2": false, "2130706433": false, "[::1]:1": false,
		"attacker.test:127.0.0.1": false, "127.0.0.1@attacker.test": false, "attackerlocalhost": false,
		"id.lambda-url.us-east-1.attacker.test": false, "id.lambda-url.us-east-1.on.aws.attacker.test": false,
		"bucket.s3.attacker.test": false, "bucket.s3.us-east-1.amazonaws.com.attacker.test": false,
		"attacker.amazonaws.com": false, "s3-attacker.amazonaws.com": false,
	}
	endpoint := *emulated(t).BaseEndpoint
	get := func(change func(*http.Request)) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, endpoint+healthPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		change(r)
		resp, err := stack.Direct.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	for host, served := range hosts {
		resp := get(func(r *http.Request) { r.Host = host })
		if (resp.StatusCode != http.StatusForbidden) != served {
			t.Errorf("%s: answered %s", host, resp.Status)
		}
		if strings.Contains(fmt.Sprint(resp.Header), "Access-Control") {
			t.Errorf("%s: the answer has %v", host, resp.Header)
		}
	}
	for _, name := range []string{"Origin", "Sec-Fetch-Site"} {
		if resp := get(func(r *http.Request) { r.Header.Set(name, "none") }); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: answered %s", name, resp.Status)
		}
	}
}

// The program of the function asks for its event as a page would, and then as it must.
func TestWebPageCannotTakeTheEventOfAFunction(t *testing.T) {
	client, name := newFunction(t, `#!/bin/bash
ask() {
	exec 3<>"/dev/tcp/${AWS_LAMBDA_RUNTIME_API/:/\/}"
	printf "$1 /2018-06-01/runtime/invocation/$2 HTTP/1.1\r\nHost: $3\r\nConnection: close\r\n$4\r\n$5" >&3
	tr -d '\r' <&3
}
refused=$(ask GET next 127.0.0.1 'Origin: http://attacker.test\r\n' | head -n 1; ask GET next attacker.test | head -n 1)
id=$(ask GET next 127.0.0.1 | sed -n 's/^Lambda-Runtime-Aws-Request-Id: //p')
body="\"${refused//$'\n'/; }\""
ask POST "$id/response" 127.0.0.1 "Content-Length: ${#body}\r\n" "$body"
`)
	out, err := client.Invoke(t.Context(), &lambda.InvokeInput{FunctionName: &name})
	if err != nil || string(out.Payload) != `"HTTP/1.1 403 Forbidden; HTTP/1.1 403 Forbidden"` {
		t.Errorf("%v, %s", err, out.Payload)
	}
}

// The table of patterns in events/README.md has a row for each pattern, and each matches what its row says:
// an event, and a reference to it. The amounts are within the limits that AWS documents.
func TestThePatternsMatchWhatTheirTableSays(t *testing.T) {
	client := eventbridge.NewFromConfig(emulated(t))
	largeEvents := bus.NewLargeEvents(&objects.Memory{}, "large-events")
	files, err := filepath.Glob("../../events/rules/*.json")
	document, readErr := os.ReadFile("../../events/README.md")
	if err != nil || readErr != nil || len(files) == 0 {
		t.Fatal(len(files), err, readErr)
	}
	const flags = `,"returns":{"hasReturnDetails":false},"cancelations":{"hasCancelationDetails":false},` +
		`"cases":{"hasLinkedCases":false}`
	for _, c := range []struct {
		from, to string // what is replaced in an event
		change   string // of the patterns that match: + for a further one, - for one that does not
	}{
		{"", "", ""},
		{"PAYMENT_STATUS.RELEASED", "PAYMENT_STATUS.REJECTED", "-released"},
		{"PAYMENT_STATUS.RELEASED", "PAYMENT_STATUS_2.RELEASED", "-released -payment-status"},
		{"PAYMENT_STATUS.RELEASED", "payment_status.RELEASED", "-released -payment-status"},
		{`"status":"RELEASED"`, `"status":"REJECTED"`, "-released-status"},
		{`"status":"RELEASED",`, ``, "-released-status"},
		{`"USD"`, `"EUR"`, "+euro"},
		{`"USD"`, `"\u0045UR"`, "+euro"},
		{`"USD"`, `"eur"`, ""},
		{`"USD"`, `"USD","settlementCurrency":"EUR"`, ""},
		{`"paymentCurrency":"USD",`, ``, ""},
		{`"hasReturnDetails":false`, `"hasReturnDetails":true`, "+needs-attention"},
		{`"hasCancelationDetails":false`, `"hasCancelationDetails":true`, "+needs-attention"},
		{`"hasLinkedCases":false`, `"hasLinkedCases":true`, "+needs-attention"},
		{flags, ``, ""},
		{"1250.00", "999.99", "-amount-range"},
		{"1250.00", "1E3", ""},
		{"1250.00", "999999.99", ""},
		{"1250.00", "1000000.00", "-amount-range"},
		{`"amount":1250.00,`, ``, "-amount-range -high-value"},
		{`"USD"`, `"USD","claimCheck":{"key":"x"}`, ""},
	} {
		raw := string(paymenttest.Encode(paymenttest.Event()))
		if strings.Count(raw, c.from) != 1 && c.from != "" {
			t.Fatalf("%s is not once in %s", c.from, raw)
		}
		raw = strings.Replace(raw, c.from, c.to, 1)
		event, err := payment.DecodeRawEvent([]byte(raw))
		if err != nil {
			t.Fatalf("%s: %v", c.to, err)
		}
		reference, err := largeEvents.Put(t.Context(), event)
		if err != nil {
			t.Fatal(err)
		}
		for kind, detail := range map[string]string{"event": raw, "reference": string(reference)} {
			changes := strings.Fields("+all +amount-range +high-value +payment-status +released +released-status")
			changes = append(changes, strings.Fields(c.change)...)
			if kind == "reference" {
				changes = append(changes, "+claim-check", "+high-value")
			}
			want := map[string]bool{}
			for _, change := range changes {
				want[change[1:]] = change[0] == '+'
			}
			envelope := fmt.Sprintf(`{"version":"0","id":"1","detail-type":%q,"source":"payhook",`+
				`"account":"111122223333","time":"2026-01-31T12:00:00Z","region":"us-east-1","resources":[],`+
				`"detail":%s}`, event.EventName, detail)
			for _, file := range files {
				pattern, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				out, err := client.TestEventPattern(t.Context(), &eventbridge.TestEventPatternInput{
					Event: &envelope, EventPattern: aws.String(string(pattern))})
				if err != nil {
					t.Fatal(err)
				}
				name := strings.TrimSuffix(filepath.Base(file), ".json")
				if out.Result != want[name] {
					t.Errorf("%s instead of %s, %s: %s matches: %t", c.to, c.from, kind, name, out.Result)
				}
				if !strings.Contains(string(document), "\n| `"+name+"` |") {
					t.Errorf("README.md has no row for %s", name)
				}
			}
		}
	}
}
