// Bench measures whole processes of the functions, as Lambda runs them, with a Runtime API, AWS and
// the key service on this machine. The lower bound is a function that does nothing but answer
// (package empty).
//
// Everything that is compared is measured in turns in one run, so that the load of the machine is
// the same for all. Ratios of two runs can be compared, times cannot.
//
// It runs on Linux only, because it reads CPU times from /proc.
package main

import (
	"bytes"
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"uuid"

	"github.com/aws/aws-lambda-go/events"

	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// functionName is the name of the measured functions in Lambda, as long as one that CloudFormation
// generates.
const functionName = "Payhook-WebhookFunction8C3FBA4E-aBcDeFgHiJkL"

// delay is the time after which AWS answers.
const delay = 10 * time.Millisecond

func main() {
	rounds := flag.Int("rounds", 3, "how `many` times everything is measured")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *rounds)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures everything and prints the report.
func run(ctx context.Context, rounds int) error {
	folder, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	b, err := newBench(ctx, folder)
	if err != nil {
		return err
	}
	defer b.close()
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, rounds)
		for _, measure := range []func(context.Context) error{b.starts, b.firsts, b.deliveries} {
			if err := measure(ctx); err != nil {
				return err
			}
		}
	}
	return b.report.print(os.Stdout)
}

type bench struct {
	folder    string // with the built functions
	http, tls *services
	sender    paymenttest.Sender
	report    report
}

func (b *bench) close() {
	b.http.close()
	b.tls.close()
}

// buildArguments are those with which the deployment builds functions.
var buildArguments = []string{"build", "-trimpath", "-buildvcs=false", "-tags=lambda.norpc", "-ldflags=-s -w -buildid="}

// newBench builds the functions and the empty one into a folder, and starts the services.
func newBench(ctx context.Context, folder string) (*bench, error) {
	cmd := exec.CommandContext(ctx, "go", append(buildArguments, "-o", folder+"/", "payhook.example/functions/...",
		"payhook.example/infra/bench/empty")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, bytes.TrimSpace(output))
	}
	key := paymenttest.NewKey(2048)
	b := &bench{folder: folder, sender: paymenttest.Sender{Key: key}, report: report{},
		http: startServices(&key.Private.PublicKey, false), tls: startServices(&key.Private.PublicKey, true)}
	return b, b.tls.writeBundle(folder)
}

// The programs. allFolders is the webhook function that reads all folders of CA certificates, as Go
// does if nothing else is set.
const empty, webhook, allFolders = "empty", "webhook", "webhook, all folders"

var programs = []string{empty, webhook, allFolders, "redrive", "token"}

// with runs a program while do is called, in the environment that the deployment gives it, with the
// defaults of all settings.
func (b *bench) with(ctx context.Context, program string, s *services, do func(*process) error) error {
	var env []string // the last value of a name is used
	for _, setting := range settings.All() {
		env = append(env, setting.Env()+"="+setting.Default)
	}
	env = append(env, "AWS_REGION=eu-central-1", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
		"AWS_SESSION_TOKEN="+strings.Repeat("t", 900), "AWS_ENDPOINT_URL="+s.aws.URL,
		"AWS_LAMBDA_FUNCTION_NAME="+functionName, "AWS_LAMBDA_FUNCTION_MEMORY_SIZE=512",
		names.LedgerTableEnv+"="+ledgerTable, names.KeysTableEnv+"="+keysTable,
		names.ClaimBucketEnv+"=claims", names.ParkingBucketEnv+"=parking",
		names.TokenSecretEnv+"=token", names.CredentialsSecretEnv+"=credentials",
		"SSL_CERT_FILE="+s.bundle, names.CertificateFoldersEnv+"="+names.NoCertificateFolders,
		settings.BaseURL.Env()+"="+s.keys.URL, settings.AuthURL.Env()+"="+s.keys.URL,
		settings.TokenManagerID.Env()+"=manager-1", settings.EventBusName.Env()+"=payhook",
		settings.KeyMissBudget.Env()+"=1000000") // it must not end in the middle of a run
	if program == allFolders {
		program, env = webhook, append(env, names.CertificateFoldersEnv+"="+s.folders)
	}
	p, err := startProcess(ctx, filepath.Join(b.folder, program), env)
	if err != nil {
		return err
	}
	defer p.stop()
	return do(p)
}

// starts measures eight starts of each function, without TLS and with it.
func (b *bench) starts(ctx context.Context) error {
	for i := range 8 * len(programs) {
		program := programs[i%len(programs)]
		for row, s := range map[string]*services{"start": b.http, "start, TLS": b.tls} {
			if err := b.with(ctx, program, s, func(p *process) error {
				one, err := p.sample()
				one[took] = p.start.Seconds() * 1000
				b.report.add(row, program, one)
				return err
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// firsts measures the first invocations of processes over TLS, four times, and the ones after them.
func (b *bench) firsts(ctx context.Context) error {
	for i := range 16 {
		k := kinds[i/2%2*2] // 1 or 100 events
		// The first process stores the key in the table.
		row := "first, " + []string{"new key", "key in the table"}[i%2] + ", " + k.row
		if i%2 == 0 {
			b.sender.Key.ID = uuid.New().String()
		}
		before := b.tls.connections.Load()
		if err := b.with(ctx, webhook, b.tls, func(p *process) error {
			one, err := b.send(ctx, p, b.tls, k)
			one[connections] = float64(b.tls.connections.Load() - before) // with those that the start has opened
			b.report.add(row, webhook, one)
			if k.events > 1 || err != nil {
				return err
			}
			return b.sendAll(ctx, p, b.tls, k, 5, "later, TLS", webhook)
		}); err != nil {
			return err
		}
	}
	return nil
}

// deliveries measures every kind of delivery, in processes that have handled others.
func (b *bench) deliveries(ctx context.Context) error {
	for i := range 2 * len(kinds) {
		k, program := kinds[i/2], programs[i%2]
		if err := b.with(ctx, program, b.http, func(p *process) error {
			for range 5 {
				if _, err := b.send(ctx, p, b.http, kinds[0]); err != nil {
					return err
				}
			}
			return b.sendAll(ctx, p, b.http, k, k.count, k.row, program)
		}); err != nil {
			return err
		}
	}
	return nil
}

// sendAll sends n deliveries, whose samples are those of a program in a row of the report.
func (b *bench) sendAll(ctx context.Context, p *process, s *services, k kind, n int, row, program string) error {
	for range n {
		one, err := b.send(ctx, p, s, k)
		if err != nil {
			return err
		}
		b.report.add(row, program, one)
	}
	return nil
}

// kind is a kind of delivery.
type kind struct {
	row    string // of the report
	events int
	parts  int // that make the invocation nearly as large as Lambda accepts
	flaw   paymenttest.Flaw
	count  int // how many are sent to each function in a round
	status int // of the answer
}

// part is repeated in large events.
const part = `{"reference":"0123456789abcdef","amount":1250.00},`

var kinds = []kind{
	{"1 event", 1, 0, "", 40, 200},
	{"10 events", 10, 0, "", 20, 200},
	{"100 events", 100, 0, "", 10, 200},
	{"1000 events", 1000, 0, "", 3, 200},
	{"forged", 1, 0, paymenttest.SignatureChanged, 20, 401},
	{"5.8 MB, accepted", 1, 5_800_000 / (len(part) + 6), "", 3, 200}, // six quotes are escaped
	{"5.8 MB, forged", 1, 5_800_000 / (len(part) + 6), paymenttest.SignatureChanged, 3, 401},
}

// send sends a new delivery to a function that uses the services.
func (b *bench) send(ctx context.Context, p *process, s *services, k kind) (sample, error) {
	all := paymenttest.Events(k.events)
	if k.parts > 0 {
		all[0].EventData.Identifiers.RailReferenceID = jsontext.Value(`{"parts":[` +
			strings.Repeat(part, k.parts) + `0]}`)
	}
	const id = "abcdefghijklmnopqrstuvwxyz012345"
	const host = id + ".lambda-url.eu-central-1.on.aws"
	w, err := b.sender.Sign(ctx, paymenttest.Webhook{Payload: paymenttest.Delivery(all...), Flaw: k.flaw,
		URL: "https://" + host + "/"})
	if err != nil {
		return sample{}, err
	}
	// AWS, "Invoking Lambda function URLs", https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html.
	headers := map[string]string{"host": host, "content-length": strconv.Itoa(len(w.Body)),
		"x-amzn-trace-id": "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700", "x-forwarded-for": "198.51.100.7",
		"x-forwarded-port": "443", "x-forwarded-proto": "https", "user-agent": "payment-service/1.0"}
	for name, values := range w.Header {
		headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	invocation, err := json.Marshal(events.LambdaFunctionURLRequest{Version: "2.0", RawPath: "/", Headers: headers,
		Body: string(w.Body), RequestContext: events.LambdaFunctionURLRequestContext{AccountID: "anonymous",
			RequestID: uuid.New().String(), APIID: id, DomainName: host, DomainPrefix: id,
			HTTP: events.LambdaFunctionURLRequestContextHTTPDescription{Method: w.Method, Path: "/",
				Protocol: "HTTP/1.1", SourceIP: "198.51.100.7", UserAgent: "payment-service/1.0"}}})
	if err != nil {
		return sample{}, err
	}
	callsBefore, connectionsBefore := s.calls.Load(), s.connections.Load()
	one, answer, err := p.invoke(invocation)
	one[calls] = float64(s.calls.Load() - callsBefore)
	one[connections] = float64(s.connections.Load() - connectionsBefore)
	want := fmt.Sprintf(`"statusCode":%d`, k.status)
	if err == nil && !strings.Contains(answer, want) && !strings.HasSuffix(p.cmd.Path, empty) {
		return one, fmt.Errorf("%s: %s", k.row, answer)
	}
	return one, err
}
