package local

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"payhook.example/infra/local/emulator"
	"payhook.example/infra/local/scenario"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

// options say what is started.
type options struct {
	top      string            // of the project
	state    string            // the folder of all files that are written; below .local
	settings map[string]string // by their keys; the defaults for those that are missing
	given    map[string]string // those of settings that the user gave
	// baseURL and authURL are those of a payment service that runs already, for keys
	// and for tokens; "" for the simulated one.
	baseURL, authURL string
	// clientID and clientSecret are for authURL. Without them, their secret stays empty.
	clientID, clientSecret string
	// truststore is a PEM file with CAs of client certificates; "" for that of the simulated
	// payment service.
	truststore string
	// endpointFor returns the endpoint of the AWS APIs for the functions, given that of the
	// emulator. nil: the latter.
	endpointFor func(string) (string, error)
	// mechanisms means that a stack for each mechanism with client certificates is synthesized
	// as well.
	mechanisms bool
	// capture means that rejected webhooks are stored unless the settings say otherwise.
	capture  bool
	wide     bool // the table shows also what is expected
	progress *emulator.Progress
}

// machine has what all stacks on this machine share: the emulator and the payment service.
type machine struct {
	opts     options
	cdk      *emulator.CDK
	emulator *emulator.Emulator
	service  *paymenttest.Server   // nil if keys and tokens are those of another service
	identity *paymenttest.Identity // issues client certificates
	serverCA *paymenttest.CA       // issues the certificate of the endpoint
	assembly string                // the folder with the templates of Payhook's stacks
	release  func()                // of the lock of the folder
	started  []*stack              // to be closed
}

// The stacks of the consumer. The emulator does not deliver to another account, so the bus of
// the stack for another account is in the same account.
const (
	consumerStack = "PayhookConsumer"
	receiverStack = "PayhookReceiver"
	otherBusARN   = "arn:aws:events:" + emulator.Region + ":" + emulator.Account + ":event-bus/payhook-receiver"
)

// start starts the emulator and the payment service, and deploys Payhook and the consumer. It
// returns the stacks for the mechanisms with client certificates, which are not deployed yet.
// After an error, nothing runs. The caller must stop the machine.
func start(ctx context.Context, o options) (_ *machine, main *stack, mechanisms []*stack, err error) {
	m := &machine{opts: o, release: func() {}}
	defer func() {
		if err != nil {
			m.stop()
		}
	}()
	if err := m.prepare(ctx); err != nil {
		return nil, nil, nil, err
	}
	m.serverCA = paymenttest.NewCA("Local Server CA")
	m.identity = paymenttest.NewIdentity(m.serverCA.Certificate)
	if err := m.startService(); err != nil {
		return nil, nil, nil, err
	}
	if main, err = m.newStack(withCapture(o)); err != nil {
		return nil, nil, nil, err
	}
	if o.mechanisms {
		if mechanisms, err = m.newMechanisms(main.Settings); err != nil {
			return nil, nil, nil, err
		}
	}
	consumer, err := m.synthesize(ctx, main, mechanisms)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := o.progress.Step("cdk deploy of Payhook",
		func() error { return main.deploy(ctx, m.assembly) }); err != nil {
		return nil, nil, nil, err
	}
	return m, main, mechanisms, o.progress.Step("cdk deploy of the consumer", func() error {
		stacks, err := m.cdk.Deploy(ctx, consumer, []string{"--parameters",
			consumerStack + ":ClaimBucket=" + main.ClaimBucket}, receiverStack, consumerStack)
		if err != nil {
			return err
		}
		return main.SetConsumer(stacks[consumerStack], stacks[receiverStack])
	})
}

// prepare locks the folder, installs the tools and compiles both CDK apps at the same time.
func (m *machine) prepare(ctx context.Context) error {
	o, compiled := m.opts, filepath.Join(m.opts.state, "compiled")
	if err := os.MkdirAll(compiled, 0o700); err != nil {
		return err
	}
	return emulator.Together(ctx,
		func(ctx context.Context) error {
			release, err := emulator.Prepare(ctx, o.top, o.state, o.progress)
			if err == nil {
				m.release = release
			}
			return err
		},
		// Both apps use the CDK's library, which takes minutes to compile. Once is enough.
		func(ctx context.Context) error {
			return o.progress.Step("compiling (minutes the first time, seconds after that)", func() error {
				build := exec.Command("go", "build", "-o", compiled+"/", "./infra", "./events/consumer")
				build.Dir = o.top
				return emulator.Run(ctx, filepath.Join(o.state, "compile.log"), build)
			})
		},
	)
}

// synthesize starts the emulator and writes the templates at the same time. It returns the
// folder with those of the consumer.
func (m *machine) synthesize(ctx context.Context, main *stack, mechanisms []*stack) (consumer string, err error) {
	o := m.opts
	m.cdk = &emulator.CDK{Top: o.top, State: o.state, Environment: emulator.Environment(o.top)}
	values := m.context(main.Settings)
	if len(mechanisms) > 0 {
		var all []map[string]string
		for _, s := range mechanisms {
			all = append(all, s.Settings)
		}
		text, err := json.Marshal(all)
		if err != nil {
			return "", err
		}
		values["payhook:localStacks"] = string(text) // the key of the CDK app for further stacks
	}
	bus := main.Setting(settings.EventBusName)
	if bus == "" {
		bus = settings.DefaultBusName(main.Setting(settings.StackName))
	}
	err = emulator.Together(ctx,
		func(ctx context.Context) error {
			return o.progress.Step("starting MiniStack", func() (err error) {
				m.emulator, err = emulator.Start(ctx, o.top, o.state, o.endpointFor)
				return err
			})
		},
		func(ctx context.Context) error {
			return o.progress.Step("synthesizing Payhook", func() (err error) {
				m.assembly, err = m.cdk.Synth(ctx, o.top, "payhook.out", values)
				return err
			})
		},
		func(ctx context.Context) error {
			return o.progress.Step("synthesizing the consumer", func() (err error) {
				consumer, err = m.cdk.Synth(ctx, filepath.Join(o.top, "events", "consumer"), "consumer.out",
					map[string]string{"eventBusName": bus, "stackName": consumerStack, "local": "true",
						"rules":         strings.Join(scenario.Rules(), ","),
						"sourceAccount": emulator.Account, "targetBus": otherBusARN})
				return err
			})
		},
	)
	if err == nil {
		m.cdk = m.emulator.CDK(o.top)
	}
	return consumer, err
}

// stop ends everything, and returns when no process is left.
func (m *machine) stop() {
	for _, s := range m.started {
		s.close()
	}
	if m.emulator != nil {
		m.emulator.Stop()
	}
	if m.service != nil {
		m.service.Close()
	}
	m.release()
}

// withCapture returns the settings of o with captureRejected if o asks for it. The setting needs
// signatures.
func withCapture(o options) map[string]string {
	values := maps.Clone(o.settings)
	if values == nil {
		values = map[string]string{}
	}
	if _, given := values[settings.CaptureRejected.Key]; !given && o.capture && scenario.UsesSignature(values) {
		values[settings.CaptureRejected.Key] = "7d" // the longest
	}
	return values
}

// startService starts the simulated payment service unless another one is used for both keys
// and tokens.
func (m *machine) startService() error {
	o := &m.opts
	if o.baseURL != "" && o.authURL != "" {
		return nil
	}
	scheme, format, err := Scheme(o.settings)
	if err != nil {
		return err
	}
	m.service = paymenttest.NewServer(paymenttest.Options{
		Scheme: scheme, TimestampFormat: format, Method: scenario.Setting(o.settings, settings.HTTPMethod),
		TokenManagerID: m.tokenManagerID(o.settings),
		FormEncoded:    scenario.Setting(o.settings, settings.CredentialEncoding) == "form",
		KeysBearer:     scenario.Setting(o.settings, settings.KeysAuth) == "bearer",
		Control:        true,
		Identity:       m.identity,
	})
	o.progress.Say("the simulated payment service is at %s", m.service.URL)
	if o.baseURL == "" {
		o.baseURL = m.service.URL
	}
	if o.authURL == "" {
		o.authURL = m.service.URL
		o.clientID, o.clientSecret = m.service.Client()
	}
	return nil
}

// Scheme returns where settings say that the proof of a webhook is.
func Scheme(values map[string]string) (signature.Scheme, signature.Format, error) {
	timestamp, errTimestamp := signature.ParseCarrier(scenario.Setting(values, settings.TimestampCarrier))
	keyID, errKeyID := signature.ParseKeyIDCarrier(scenario.Setting(values, settings.KeyIDCarrier))
	format, errFormat := signature.ParseFormat(scenario.Setting(values, settings.TimestampFormat))
	return signature.Scheme{SignatureHeader: scenario.Setting(values, settings.SignatureHeader), Timestamp: timestamp,
		KeyID: keyID}, format, errors.Join(errTimestamp, errKeyID, errFormat)
}

func (m *machine) tokenManagerID(values map[string]string) string {
	if id := scenario.Setting(values, settings.TokenManagerID); id != "" {
		return id
	}
	return settings.TokenManagerID.Example
}

// context returns the context of the CDK app for a stack with settings.
func (m *machine) context(values map[string]string) map[string]string {
	values = maps.Clone(values)
	values[settings.LocalKey] = "true"
	values[settings.BaseURL.Key] = m.opts.baseURL
	values[settings.AuthURL.Key] = m.opts.authURL
	values[settings.TokenManagerID.Key] = m.tokenManagerID(values)
	return values
}

// mechanisms are those with client certificates, each with the stack that shows it.
var mechanisms = []struct{ authentication, stack, domain string }{
	{settings.ByMTLS, "PayhookMTLS", "mtls.payhook.test"},
	{settings.ByBoth, "PayhookBoth", "both.payhook.test"},
}

// newMechanisms returns a stack for each mechanism.
func (m *machine) newMechanisms(values map[string]string) ([]*stack, error) {
	certificates := scenario.NewCertificates(m.identity)
	var stacks []*stack
	for _, mechanism := range mechanisms {
		own := maps.Clone(values)
		maps.Copy(own, certificates.Settings(m.identity))
		own[settings.StackName.Key] = mechanism.stack
		own[settings.EventBusName.Key] = settings.DefaultBusName(mechanism.stack)
		own[settings.Authentication.Key], own[settings.DomainName.Key] = mechanism.authentication, mechanism.domain
		s, err := m.newStack(own)
		if err != nil {
			return nil, err
		}
		s.Certificates = certificates
		stacks = append(stacks, s)
	}
	return stacks, nil
}

// showMechanisms deploys the stacks for the mechanisms, and does their checks.
func (m *machine) showMechanisms(ctx context.Context, stacks []*stack) ([]scenario.Section, error) {
	if len(stacks) == 0 {
		return nil, nil
	}
	if err := m.opts.progress.Step("cdk deploy of the stacks with client certificates", func() error {
		outputs, err := m.cdk.Deploy(ctx, m.assembly, nil, mechanismPaths()...)
		if err != nil {
			return err
		}
		for _, s := range stacks {
			if err := s.ready(ctx, outputs[s.Stack]); err != nil {
				return err
			}
			if err := s.subscribe(ctx); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	var sections []scenario.Section
	// One after another: they change the certificate that the service presents.
	for _, s := range stacks {
		if first := s.FirstToken(); s.Setting(settings.KeysAuth) == "bearer" {
			if err := s.Run(ctx, first); err != nil || !first.Right {
				return nil, errors.Join(errors.New(s.Stack+" has no token: "+first.Got), err)
			}
		}
		own, err := s.ShowMechanism(ctx)
		if err != nil {
			return nil, err
		}
		sections = append(sections, own...)
	}
	return sections, nil
}

// mechanismPaths are the paths of the stacks in the CDK app.
func mechanismPaths() []string {
	var paths []string
	for _, mechanism := range mechanisms {
		paths = append(paths, mechanism.stack+"/Payhook")
	}
	return paths
}
