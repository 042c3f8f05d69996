package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"payhook.example/infra/deployment"
	"payhook.example/shared/paymenttest"
)

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
		resp, err := deployment.Direct.Do(r)
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
