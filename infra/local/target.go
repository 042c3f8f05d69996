package local

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	"payhook.example/infra/deployment"
	"payhook.example/shared/intake"
	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
)

// Need is what a deployment must be on to show a row of the table.
type Need string

// LambdaLimits means that a function URL rejects a request that is too large for Lambda.
const LambdaLimits Need = "Lambda's limits of size"

// Service is the simulated payment service of a deployment, wherever it runs.
type Service interface {
	BaseURL() string
	Sender() paymenttest.Sender
	Rotate(context.Context) error
	SetTokenLifetime(context.Context, time.Duration) error
	Misbehave(context.Context, paymenttest.Endpoint, paymenttest.Fault) error
}

// ownService is the service in this process.
type ownService struct{ *paymenttest.Server }

func (o ownService) BaseURL() string { return o.URL }

func (o ownService) Rotate(context.Context) error {
	o.Server.Rotate()
	return nil
}

func (o ownService) SetTokenLifetime(_ context.Context, d time.Duration) error {
	o.Server.SetTokenLifetime(d)
	return nil
}

func (o ownService) Misbehave(_ context.Context, e paymenttest.Endpoint, f paymenttest.Fault) error {
	return o.Server.Misbehave(e, f)
}

// Deployment is a Payhook of which the table is shown, with a consumer and a simulated
// payment service beside it: in an account of AWS, or in an emulator.
type Deployment struct {
	deployment.Deployment
	Service  Service
	Identity *paymenttest.Identity // the service's client certificates; nil if it needs none
	// Certificates are its further ones, which the settings know.
	Certificates Certificates
	Client       *http.Client    // calls the protected API
	Out          io.Writer       // for the progress
	Consumer     Consumer        // the consumer's function
	Claims       string          // the name of the bucket with large events
	Lacks        map[Need]string // what it is not on, each with the reason
}

// Show sends what the table of a local run has, and returns the results.
func (d *Deployment) Show(ctx context.Context) ([]Part, error) {
	s := &stack{Deployment: d.Deployment, shown: d.Service, identity: d.Identity, special: d.Certificates,
		lacks: d.Lacks, client: d.Client,
		consumer: d.Consumer, claimBucket: d.Claims,
		opts: options{settings: d.Settings, authURL: d.Service.BaseURL(), progress: newProgress(d.Out)}}
	report, err := s.show(ctx)
	return report.Parts, err
}

// ReadNames reads where things are from the outputs of Payhook's stack, of the consumer's and
// of the one with the other bus.
func (d *Deployment) ReadNames(payhook, consumer, receiver map[string]string) error {
	s := &stack{Deployment: d.Deployment, opts: options{settings: d.Settings}}
	s.readNames(payhook)
	if err := s.readConsumer(consumer, receiver); err != nil {
		return err
	}
	d.Deployment, d.Consumer, d.Claims = s.Deployment, s.consumer, s.claimBucket
	d.WebhookURL = payhook[names.WebhookURLOutput]
	if d.Endpoint != "" {
		d.WebhookURL = FunctionURL(d.Endpoint, d.WebhookURL)
	}
	return nil
}

// ParkedEvent returns the name of the one thing that is parked for an eventId, and its reason.
func (d *Deployment) ParkedEvent(ctx context.Context, eventID string) (name, reason string, err error) {
	name, p, err := (&stack{Deployment: d.Deployment}).parkedEvent(ctx, eventID)
	return name, string(p.Reason), err
}

// Replay has the redrive function replay one thing that is parked and is no conflict, and
// publish it. It returns the outcome of the replay.
func (d *Deployment) Replay(ctx context.Context, name string) (outcome string, err error) {
	return (&stack{Deployment: d.Deployment}).replay(ctx, name, intake.NoVersion)
}

// OtherBus is what [Deployment.Queues] and [Arrived] have as the rule behind the second bus.
const OtherBus = otherBus

// Arrived is an event that arrived behind a rule.
type Arrived struct {
	Rule, DeliveryID, EventID string
	Detail                    []byte // as it arrived
	ID                        string // of the envelope
}

// Arrivals takes events out of the queues behind rules.
type Arrivals struct{ all *arrivals }

// Receive starts to take events out of the queues of d. The caller must stop it.
func (d *Deployment) Receive() *Arrivals { return &Arrivals{receive(d.AWS, d.Queues)} }

// Stop returns when nothing is received any more.
func (a *Arrivals) Stop() { a.all.stop() }

// Await waits until enough is true for what has arrived, and returns it. At the deadline,
// it returns what there is, with an error.
func (a *Arrivals) Await(ctx context.Context, timeout time.Duration, enough func([]Arrived) bool) ([]Arrived, error) {
	converted := func(all []arrival) []Arrived {
		list := make([]Arrived, len(all))
		for i, one := range all {
			list[i] = Arrived{one.rule, one.deliveryID, one.eventID, one.detail, one.id}
		}
		return list
	}
	all, err := a.all.await(ctx, timeout, func(all []arrival) bool { return enough(converted(all)) })
	return converted(all), err
}

// Emulator is an emulator of AWS that is prepared for the CDK and has nothing deployed.
type Emulator struct {
	AWS      aws.Config
	Endpoint string
	stack    *stack
}

// StartEmulator starts an emulator that writes to the folder state only. It installs the
// tools that are missing, also those for an account. The caller must stop it.
func StartEmulator(ctx context.Context, top, state string, out io.Writer) (_ *Emulator, err error) {
	p := newProgress(out)
	s := &stack{opts: options{top: top, state: state, progress: p}}
	if s.lock, err = lockFolder(state); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	endLeftovers(state)
	if err := InstallTools(ctx, top, state, out); err != nil {
		return nil, err
	}
	t := tools{top}
	if err := p.step("starting MiniStack", func() error {
		same := func(own string) (string, error) { return own, nil }
		if s.emulator, err = startEmulator(ctx, t, state, same); err != nil {
			return err
		}
		if err := remember(state, s.emulator.pid); err != nil {
			return err
		}
		s.Endpoint, s.Region = s.emulator.endpoint, region
		return s.cdk(ctx, "bootstrap", s.Endpoint, state, "bootstrap", "aws://"+account+"/"+region)
	}); err != nil {
		return nil, err
	}
	return &Emulator{awsConfig(s.Endpoint), s.Endpoint, s}, nil
}

// Pass makes the metrics of the emulator older, as if that time had passed for CloudWatch. Nothing
// else gets older.
func (e *Emulator) Pass(ctx context.Context, d time.Duration) error {
	_, err := cloudwatch.NewFromConfig(e.AWS).PutMetricData(ctx, &cloudwatch.PutMetricDataInput{
		Namespace: aws.String("Emulator"), MetricData: []cwtypes.MetricDatum{{
			MetricName: aws.String("SecondsPassed"), Value: aws.Float64(d.Seconds())}}})
	return err
}

// Stop ends the emulator with everything that it has started.
func (e *Emulator) Stop() { e.stack.stop() }

// Environment is the environment for [CDK].
func (e *Emulator) Environment() []string {
	return append(emulatorEnvironment(e.stack.opts.top), "AWS_ENDPOINT_URL="+e.Endpoint)
}

// InstallTools installs the pinned tools into the project, if they are missing.
func InstallTools(ctx context.Context, top, state string, out io.Writer) error {
	if _, err := findTools(); err != nil {
		return err
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	return tools{top}.install(ctx, newProgress(out), filepath.Join(state, "install.log"))
}

// EndLeftovers ends an emulator that StartEmulator started with that state and that was not
// stopped. It reports whether there was one.
func EndLeftovers(state string) bool {
	l, err := lockFolder(state)
	if err != nil {
		return false
	}
	defer l.release()
	return endLeftovers(state)
}

// CDK runs the CDK CLI in a folder, with all it starts, to its end or ctx's. What it says
// is appended to the file log; the end of that is in the error if it fails.
func CDK(ctx context.Context, top, log, folder string, environment []string, args ...string) error {
	cmd := exec.Command(tools{top}.cdk(), append(args, "--no-notices", "--no-color", "--ci")...)
	cmd.Dir, cmd.Env = folder, environment
	return logged(ctx, log, cmd)
}

// ProjectTop returns the folder of go.mod.
func ProjectTop() (string, error) { return projectTop() }

// Rules are the rules of the consumer that the table needs, for the context key rules of
// its CDK app.
func Rules() []string { return slices.Clone(deployedRules) }
