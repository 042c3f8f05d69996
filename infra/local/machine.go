package local

import (
	"cmp"
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"payhook.example/infra/checks"
	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// options say what is started.
type options struct {
	top      string            // of the project
	state    string            // the folder of all files that are written; below .local
	settings map[string]string // by their keys; the defaults for those that are missing
	given    map[string]string // those of settings that the user gave
	// forFunctions returns the endpoint of the AWS APIs for the functions, given that of the
	// emulator. nil: the latter.
	forFunctions func(string) string
	progress     *Progress
}

// machine has what all stacks on this machine share: the emulator and the payment service.
type machine struct {
	options
	main     *checks.Subject
	cdk      *CDK
	emulator *Emulator
	service  *paymenttest.Server
	identity *paymenttest.Identity // issues client certificates
	serverCA *paymenttest.CA       // issues the certificates of endpoints
	end      []func()              // ends what was started, in reverse order
}

// The stacks of the consumer. The emulator does not deliver to another account, so the bus of
// the stack for another account is in the same account.
const (
	consumerStack = "PayhookConsumer"
	receiverStack = "PayhookReceiver"
	otherBusARN   = "arn:aws:events:" + Region + ":" + Account + ":event-bus/payhook-receiver"
)

// start starts the emulator and the payment service, and deploys Payhook and the consumer.
// After an error, nothing runs. The caller must stop the machine.
func start(ctx context.Context, o options) (_ *machine, err error) {
	m := &machine{options: o}
	defer func() {
		if err != nil {
			m.stop()
		}
	}()
	release, err := Prepare(ctx, m.top, m.state, m.progress)
	if err != nil {
		return nil, err
	}
	m.end = append(m.end, release)
	m.serverCA = paymenttest.NewCA("Local Server CA")
	m.identity = paymenttest.NewIdentity(m.serverCA.Certificate)
	if err := m.startService(); err != nil {
		return nil, err
	}
	if m.main, err = m.newStack(o.settings); err != nil {
		return nil, err
	}
	assembly, consumer, err := m.synthesize(ctx)
	if err != nil {
		return nil, err
	}
	if err := o.progress.Step("cdk deploy of Payhook", func() error {
		return m.deploy(ctx, m.main, assembly)
	}); err != nil {
		return nil, err
	}
	return m, o.progress.Step("cdk deploy of the consumer", func() error {
		stacks, err := m.cdk.Deploy(ctx, consumer, []string{"--parameters",
			consumerStack + ":ClaimBucket=" + m.main.ClaimBucket}, receiverStack, consumerStack)
		if err != nil {
			return err
		}
		return m.main.SetConsumer(stacks[consumerStack], stacks[receiverStack])
	})
}

// stop ends everything, and returns when no process is left.
func (m *machine) stop() {
	for _, end := range slices.Backward(m.end) {
		end()
	}
	m.end = nil
}

// synthesize starts the emulator and writes the templates at the same time. It returns the
// folders with those of Payhook and of the consumer.
func (m *machine) synthesize(ctx context.Context) (assembly, consumer string, err error) {
	cdk := &CDK{Top: m.top, State: m.state, Environment: CDKEnvironment(m.top)}
	values := m.context(m.main.Settings)
	if err := checkSettings(m.main.Stack, values, m.given); err != nil {
		return "", "", err
	}
	bus := m.main.Setting("eventBusName")
	if bus == "" {
		bus = settings.DefaultBusName(m.main.Stack)
	}
	group, within := errgroup.WithContext(ctx)
	step := func(name string, do func() error) {
		group.Go(func() error { return m.progress.Step(name, do) })
	}
	step("starting MiniStack", func() (err error) {
		if m.emulator, err = StartEmulator(within, m.top, m.state, m.forFunctions); err == nil {
			m.cdk, m.end = m.emulator.CDK(m.top), append(m.end, m.emulator.Stop)
		}
		return err
	})
	step("synthesizing Payhook", func() (err error) {
		assembly, err = cdk.Synth(within, m.top, "payhook.out", values)
		return err
	})
	step("synthesizing the consumer", func() (err error) {
		consumer, err = cdk.Synth(within, filepath.Join(m.top, "events", "consumer"), "consumer.out",
			map[string]string{"eventBusName": bus, "stackName": consumerStack, "local": "true",
				"rules":         strings.Join(checks.Rules(), ","),
				"sourceAccount": Account, "targetBus": otherBusARN})
		return err
	})
	err = group.Wait()
	return assembly, consumer, err
}

// checkSettings returns an error that lists what is wrong with the context of the app. The app reports the
// same later, among messages of the CDK. Those of given are from the command line.
func checkSettings(stack string, texts, given map[string]string) error {
	values := settings.Texts(texts, "infra/settings.json")
	maps.Copy(values, settings.Texts(given, "-c"))
	delete(values, settings.LocalKey)
	if _, err := settings.ParseDeployment(settings.Given{Deployment: stack, Local: true, Values: values}); err != nil {
		return cli.Usage("these settings are wrong:\n  %s", strings.ReplaceAll(err.Error(), "\n", "\n  "))
	}
	return nil
}

// startService starts the simulated payment service.
func (m *machine) startService() error {
	service, err := checks.ServiceOptions(m.settings)
	if err != nil {
		return err
	}
	service.Identity = m.identity
	m.service = paymenttest.NewServer(service)
	m.end = append(m.end, m.service.Close)
	m.progress.Say("the simulated payment service is at %s", m.service.URL)
	return nil
}

// context returns the context of the CDK app for a stack with settings.
func (m *machine) context(values map[string]string) map[string]string {
	values = maps.Clone(values)
	values[settings.LocalKey] = "true"
	values["baseUrl"], values["authUrl"] = m.service.URL, m.service.URL
	values["tokenManagerId"] = cmp.Or(values["tokenManagerId"], settings.Named("tokenManagerId").Example)
	return values
}
