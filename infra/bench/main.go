// Bench measures what users pay for: whole processes of the functions, as Lambda runs
// them, under a Runtime API of its own, with AWS and the key service on this machine. The
// lower bound is a function that does nothing but answer (package empty).
//
// What is compared is measured in turns in one run, so that the load of the machine is the
// same for all. Ratios within one run can be compared with those of another; times cannot.
//
// It runs on Linux only, because it reads CPU times from /proc.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"uuid"

	"payhook.example/infra/bench/result"
	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// functionName is the name of the measured functions in Lambda, as long as one that
// CloudFormation generates.
const functionName = "Payhook-WebhookFunction8C3FBA4E-aBcDeFgHiJkL"

// minDelay is the shortest time after which AWS answers: the functions must be seen
// waiting.
const minDelay = 3 * time.Millisecond

type options struct {
	delay  time.Duration
	rounds int
	before string // folder with a second set of functions
	env    list   // further variables of the functions
	json   bool
	only   string // the step that is measured; "": all
}

// list is a flag that can be repeated.
type list []string

func (l *list) String() string { return strings.Join(*l, " ") }

func (l *list) Set(value string) error {
	if !strings.Contains(value, "=") {
		return errors.New("want NAME=VALUE")
	}
	*l = append(*l, value)
	return nil
}

func main() {
	var o options
	flag.DurationVar(&o.delay, "delay", 10*time.Millisecond,
		"the `time` after which AWS and the key service answer; at least 3ms")
	flag.IntVar(&o.rounds, "rounds", 3, "how `many` times everything is measured")
	flag.StringVar(&o.before, "before", "",
		"a `folder` with other builds of webhook, redrive and token, to compare with")
	flag.Var(&o.env, "env", "`NAME=VALUE`: a further variable of the functions, such as GOGC=200; can be repeated")
	flag.BoolVar(&o.json, "json", false, "print the report as JSON")
	flag.StringVar(&o.only, "only", "", "measure one `step`: start, first or deliveries")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), "Bench measures the functions as whole processes.\n\n"+
			"  go run ./infra/bench -rounds 5 -delay 3ms\n\n"+
			"Build another commit's functions, and compare with them:\n\n"+
			"  git worktree add /tmp/before COMMIT && cd /tmp/before\n"+
			"  CGO_ENABLED=0 go build -tags=lambda.norpc -o /tmp/functions/ ./functions/...\n"+
			"  go run ./infra/bench -before /tmp/functions\n\nFlags:\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	known := slices.Contains([]string{"", "start", "first", "deliveries"}, o.only)
	if flag.NArg() > 0 || o.rounds < 1 || o.delay < minDelay || !known {
		fmt.Fprintf(os.Stderr, "bench: -rounds is at least 1, -delay at least %v, -only is start, first or "+
			"deliveries, and there are no arguments\n", minDelay)
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	r, err := measure(ctx, o)
	interrupted := ctx.Err() != nil
	stop()
	if err == nil {
		err = r.print(os.Stdout, o.json)
	}
	switch {
	case interrupted:
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// program is a function that is measured.
type program struct {
	name string
	path string
}

// buildArguments are those that the deployment builds functions with, as far as they
// change what is measured.
var buildArguments = []string{"build", "-trimpath", "-buildvcs=false", "-tags=lambda.norpc", "-ldflags=-s -w -buildid="}

// build builds the functions and the empty one into a folder.
func build(ctx context.Context, folder string) error {
	cmd := exec.CommandContext(ctx, "go", append(buildArguments, "-o", folder+string(filepath.Separator),
		"payhook.example/functions/webhook", "payhook.example/functions/redrive", "payhook.example/functions/token",
		"payhook.example/infra/bench/empty")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, bytes.TrimSpace(output))
	}
	return nil
}

// bench is one run of the benchmark.
type bench struct {
	options
	report         *report
	sender         *sender
	services       map[bool]*services // by whether they have TLS
	webhooks       []program          // that get deliveries; the first is the empty function
	starting       []program          // whose start is measured
	deliveries     []delivery
	coldDeliveries []int // numbers of events
}

// measure measures everything, and returns the report.
func measure(ctx context.Context, o options) (*report, error) {
	folder, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	progress("building the functions")
	if err := build(ctx, folder); err != nil {
		return nil, err
	}
	b := &bench{options: o, report: newReport(o), services: map[bool]*services{}, coldDeliveries: []int{1, 100}}
	of := func(name, label, folder string) program { return program{label, filepath.Join(folder, name)} }
	b.webhooks = []program{of("empty", "empty", folder), of("webhook", "webhook", folder)}
	b.starting = append(b.webhooks[:2:2], of("redrive", "redrive", folder), of("token", "token", folder))
	if o.before != "" {
		b.webhooks = append(b.webhooks, of("webhook", "before", o.before))
		b.starting = append(b.starting, of("webhook", "before", o.before))
	}
	b.deliveries = []delivery{accepted(1, 40), accepted(10, 20), accepted(100, 10), accepted(1000, 3)}
	b.deliveries = append(append(b.deliveries, rejected()...), large()...)

	key := paymenttest.NewKey(2048)
	b.sender = &sender{ctx: ctx, Key: key, keyID: key.ID}
	for _, tls := range []bool{false, true} {
		s, err := startServices(o.delay, tls, &key.Private.PublicKey, folder)
		if err != nil {
			return nil, err
		}
		defer s.close()
		b.services[tls] = s
	}
	for round := range o.rounds {
		for _, step := range []struct {
			name string
			do   func(context.Context) error
		}{{"start", b.start}, {"first", b.cold}, {"deliveries", b.warm}} {
			if o.only != "" && o.only != step.name {
				continue
			}
			progress("round %d of %d: %s", round+1, o.rounds, step.name)
			if err := step.do(ctx); err != nil {
				return nil, errors.Join(ctx.Err(), err)
			}
		}
	}
	b.report.Load = append(b.report.Load, load())
	return b.report, nil
}

func progress(format string, values ...any) { fmt.Fprintf(os.Stderr, format+"\n", values...) }

// load returns the load averages of the machine.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

// environment returns the environment that the deployment gives a function, with the
// defaults of all settings.
func (b *bench) environment(s *services) []string {
	env := append([]string{
		"AWS_REGION=eu-central-1", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_SESSION_TOKEN=" +
			strings.Repeat("t", 900), "AWS_ENDPOINT_URL=" + s.aws.URL,
		"AWS_LAMBDA_FUNCTION_NAME=" + functionName, "AWS_LAMBDA_FUNCTION_MEMORY_SIZE=512",
		names.LedgerTableEnv + "=" + ledgerTable, names.KeysTableEnv + "=" + keysTable,
		names.ClaimBucketEnv + "=" + claimBucket, names.ParkingBucketEnv + "=" + parkingBucket,
		names.TokenSecretEnv + "=token", names.CredentialsSecretEnv + "=credentials",
	}, b.env...)
	if s.bundle != "" {
		env = append(env, "SSL_CERT_FILE="+s.bundle)
	}
	values := map[*settings.Setting]string{
		settings.BaseURL: s.keys.URL, settings.AuthURL: s.keys.URL, settings.TokenManagerID: "manager-1",
		settings.EventBusName: "payhook",
		// The budget must not end in the middle of a run.
		settings.KeyMissBudget: "1000000",
	}
	seen := map[string]bool{}
	for _, list := range [][]*settings.Setting{settings.WebhookSettings(), settings.RedriveSettings(),
		settings.TokenSettings()} {
		for _, setting := range list {
			if value, ok := values[setting]; !seen[setting.Env()] {
				if !ok {
					value = setting.Default
				}
				env = append(env, setting.Env()+"="+value)
				seen[setting.Env()] = true
			}
		}
	}
	return env
}

// run runs a program while do is called.
func (b *bench) run(ctx context.Context, p program, s *services, do func(*process) error) error {
	started, err := startProcess(ctx, p.path, b.environment(s))
	if err == nil {
		err = do(started)
		started.stop()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// starts is how often each function is started in a round.
const starts = 8

func (b *bench) start(ctx context.Context) error {
	s := b.services[false]
	for range starts {
		for _, p := range b.starting {
			err := b.run(ctx, p, s, func(running *process) error {
				cpu, err := running.cpu()
				if err != nil {
					return err
				}
				memory, err := running.memory()
				b.report.add("start", p.name, sample{took: running.start, cpu: cpu, memory: memory})
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// colds is how often each first invocation is measured in a round.
const colds = 4

// cold measures the first invocations of processes, and the ones after them.
func (b *bench) cold(ctx context.Context) error {
	for range colds {
		for _, tls := range []bool{false, true} {
			s := b.services[tls]
			s.set(true, false)
			for _, events := range b.coldDeliveries {
				for _, known := range []bool{true, false} {
					for _, p := range b.webhooks {
						if err := b.coldOne(ctx, p, s, tls, known, events); err != nil {
							return err
						}
					}
				}
			}
		}
	}
	return nil
}

func (b *bench) coldOne(ctx context.Context, p program, s *services, tls, known bool, events int) error {
	d := accepted(events, 1)
	row := result.First(tls, known, events)
	from := *b.sender
	from.keyID = uuid.New().String()
	if known { // another process stores the key in the table
		if err := b.run(ctx, b.webhooks[1], s, func(running *process) error {
			_, err := b.deliver(running, d, &from)
			return err
		}); err != nil {
			return err
		}
	}
	before := s.usage()
	return b.run(ctx, p, s, func(running *process) error {
		first, err := b.deliver(running, d, &from)
		if err != nil {
			return err
		}
		used := s.usage().minus(before)
		b.report.add(row, p.name, sample{took: first.took, cpu: first.cpu, usage: used, log: first.log})
		if events != 1 {
			return nil
		}
		for range 5 {
			before := s.usage()
			next, err := b.deliver(running, d, &from)
			if err != nil {
				return err
			}
			b.report.add(result.Later(tls), p.name, sample{took: next.took, cpu: next.cpu, log: next.log,
				usage: s.usage().minus(before)})
		}
		return nil
	})
}

// deliver invokes a function with a delivery, and checks the answer.
func (b *bench) deliver(p *process, d delivery, from *sender) (invocation, error) {
	payload, err := d.make(from)
	if err != nil {
		return invocation{}, err
	}
	return p.invoke(payload)
}

// warm measures every kind of delivery, in processes that have handled others.
func (b *bench) warm(ctx context.Context) error {
	s := b.services[false]
	s.reset()
	return b.together(ctx, b.webhooks, nil, func(running []*process) error {
		s.set(true, false)
		for _, p := range running {
			for range 5 {
				if _, err := b.deliver(p, accepted(1, 1), b.sender); err != nil {
					return err
				}
			}
		}
		for _, d := range b.deliveries {
			for i, p := range running {
				s.set(!d.stored, d.down)
				from := *b.sender
				if d.stored { // the first of these is new
					if _, err := b.deliver(p, d, &from); err != nil {
						return err
					}
				}
				for range d.count {
					payload, err := d.make(&from)
					if err != nil {
						return err
					}
					before := s.usage()
					got, err := p.invoke(payload)
					if err != nil {
						return fmt.Errorf("%s: %s: %w", b.webhooks[i].name, d.name, err)
					}
					want := fmt.Appendf(nil, `"statusCode":%d`, d.status)
					if i > 0 && !bytes.Contains(got.body, want) {
						return fmt.Errorf("%s: %s: %s: %s", b.webhooks[i].name, d.name, got.body, p.log)
					}
					memory, err := p.memory()
					if err != nil {
						return err
					}
					b.report.add(d.name, b.webhooks[i].name, sample{took: got.took, cpu: got.cpu, log: got.log,
						usage: s.usage().minus(before), memory: memory})
				}
			}
		}
		return nil
	})
}

// together runs programs at the same time while do is called with all of them.
func (b *bench) together(ctx context.Context, programs []program, running []*process,
	do func([]*process) error) error {
	if len(programs) == 0 {
		return do(running)
	}
	return b.run(ctx, programs[0], b.services[false], func(p *process) error {
		return b.together(ctx, programs[1:], append(running, p), do)
	})
}
