package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	eventbridgetypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"payhook.example/infra/bench/result"
	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
)

func TestTheFunctionsAreBuiltAsForADeployment(t *testing.T) {
	text, err := os.ReadFile("../payhook/build.go")
	if err != nil {
		t.Fatal(err)
	}
	quoted := `"` + strings.Join(buildArguments, `", "`) + `"`
	if !strings.Contains(string(text), quoted) {
		t.Errorf("infra/payhook/build.go builds with other arguments than %s", quoted)
	}
}

// Every kind of delivery gets the answer that its row says, with the built function.
func TestEveryRowIsWhatItSays(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the functions")
	}
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip("no CPU times: ", err)
	}
	folder := t.TempDir()
	if err := build(t.Context(), folder); err != nil {
		t.Fatal(err)
	}
	key := paymenttest.NewKey(2048)
	o := options{delay: minDelay, rounds: 1}
	s, err := startServices(o.delay, false, &key.Private.PublicKey, folder)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	b := &bench{options: o, report: newReport(o), services: map[bool]*services{false: s},
		sender: &sender{ctx: t.Context(), Key: key, keyID: key.ID}}
	b.webhooks = []program{{"empty", filepath.Join(folder, "empty")}, {"webhook", filepath.Join(folder, "webhook")}}
	b.deliveries = append(append([]delivery{accepted(1, 1), accepted(30, 1)}, rejected()...), large()...)
	for i := range b.deliveries {
		b.deliveries[i].count = 2
	}
	if err := b.warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, l := range b.report.lines() {
		if l.Samples != 2 || l.P50 <= 0 || l.CPU <= 0 || l.RSS <= 0 {
			t.Errorf("%+v", l)
		}
		if l.Program == "webhook" && l.Log == 0 {
			t.Errorf("no outcome line: %+v", l)
		}
		switch {
		case l.Program == "empty":
			if l.Calls != 0 || l.Log != 0 {
				t.Errorf("the empty function makes calls or writes: %+v", l)
			}
		case l.Row == "1 event":
			if l.Calls != 3 || l.P50 < 3*milliseconds(minDelay) {
				t.Errorf("record, publish, mark: %+v", l)
			}
		case l.Row == "conflict": // record, and park
			if l.Calls < 2 {
				t.Errorf("%+v", l)
			}
		}
	}
}

// The services answer the real SDK over TLS, not before the delay, on one connection.
func TestTheServicesAnswerLate(t *testing.T) {
	key := paymenttest.NewKey(2048)
	s, err := startServices(minDelay, true, &key.Private.PublicKey, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	text, err := os.ReadFile(s.bundle)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		t.Fatal("no certificate")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	cfg := aws.Config{Region: "us-east-1", BaseEndpoint: &s.aws.URL, HTTPClient: &http.Client{Transport: transport},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")}
	for _, canned := range []bool{false, true} {
		s.set(canned, false)
		start := time.Now()
		_, err = dynamodb.NewFromConfig(cfg).PutItem(t.Context(), &dynamodb.PutItemInput{
			TableName: aws.String(ledgerTable),
			Item:      map[string]types.AttributeValue{names.LedgerKey: &types.AttributeValueMemberS{Value: "1"}}})
		if took := time.Since(start); err != nil || took < minDelay {
			t.Errorf("%v after %v", err, took)
		}
		out, err := eventbridge.NewFromConfig(cfg).PutEvents(t.Context(), &eventbridge.PutEventsInput{
			Entries: []eventbridgetypes.PutEventsRequestEntry{
				{Source: aws.String("s"), DetailType: aws.String("t"), Detail: aws.String("{}")},
				{Source: aws.String("s"), DetailType: aws.String("t"), Detail: aws.String("{}")}}})
		if err != nil || len(out.Entries) != 2 || aws.ToString(out.Entries[1].EventId) == "" {
			t.Errorf("%v %v", out, err)
		}
	}
	// The key service is not one of AWS.
	response, err := cfg.HTTPClient.(*http.Client).Get(s.keys.URL)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if u := s.usage(); u.calls != 4 || u.connections != 1 {
		t.Errorf("%+v", u)
	}
}

// What -json prints is what payhook acceptance reads.
func TestTheJSONIsReadAgain(t *testing.T) {
	r := newReport(options{delay: 10 * time.Millisecond, rounds: 2, env: list{"GOGC=100"}})
	one := sample{took: 30 * time.Millisecond, cpu: 2 * time.Millisecond, calls: 3, log: 500}
	rows := []string{accepted(1, 1).name, accepted(100, 1).name, result.First(true, true, 1)}
	for _, row := range rows {
		r.add(row, "empty", sample{cpu: time.Millisecond})
		r.add(row, "webhook", one)
	}
	name := filepath.Join(t.TempDir(), "bench.json")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.print(file, true), file.Close()); err != nil {
		t.Fatal(err)
	}
	read, err := result.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	if read.Delay != "10ms" || read.Rounds != 2 || read.Env != "GOGC=100" || len(read.Load) != 1 ||
		!slices.Equal(read.Lines, r.lines()) || !slices.Equal(read.Ratios, r.ratios()) || len(read.Ratios) == 0 {
		t.Errorf("read %+v", read)
	}
	for _, row := range rows {
		if l, ok := read.Of(row); !ok || l.P50 != 30 || l.Calls != 3 || l.CPUToEmpty != 2 {
			t.Errorf("%s: %+v", row, l)
		}
	}
}

func TestQuantiles(t *testing.T) {
	values := []float64{5, 1, 4, 2, 3}
	for part, want := range map[float64]float64{0: 1, 0.2: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := quantile(values, part); got != want {
			t.Errorf("quantile %v is %v, want %v", part, got, want)
		}
	}
	if !math.IsNaN(quantile(nil, 0.5)) {
		t.Error("of nothing")
	}
}
