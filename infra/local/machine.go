package local

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"golang.org/x/sync/errgroup"

	"payhook.example/infra/checks"
	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/stack"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

type options struct {
	top      string            // of the project
	state    string            // the folder of all files that are written; below .local
	settings map[string]string // by their keys; the defaults for those that are missing
	given    map[string]string // those of settings that the user gave
	// forFunctions returns the endpoint of the AWS APIs for the functions, given that of the emulator. nil: the latter.
	forFunctions func(string) string
	progress     *Progress
}

// machine has what all stacks on this machine share: the emulator and the payment service.
type machine struct {
	options  options
	main     *checks.Subject
	cdk      *CDK
	emulator *Emulator
	service  *paymenttest.Server
	identity *paymenttest.Identity // issues client certificates
	serverCA *paymenttest.CA       // issues the certificates of endpoints
	end      []func()              // ends what was started, in reverse order
}

const consumerStack = "PayhookConsumer"

// start starts the emulator and the payment service, and deploys Payhook and the consumer.
// After an error, nothing runs. The caller must stop the machine.
func start(ctx context.Context, o options) (_ *machine, err error) {
	m := &machine{options: o}
	defer func() {
		if err != nil {
			m.stop()
		}
	}()
	release, err := Prepare(ctx, m.options.top, m.options.state, m.options.progress)
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
			consumerStack + ":LargeEventBucket=" + m.main.Stack.LargeEventBucket}, consumerStack)
		if err != nil {
			return err
		}
		return m.main.SetConsumer(stacks[consumerStack])
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
	cdk := &CDK{Top: m.options.top, State: m.options.state, Environment: CDKEnvironment(m.options.top)}
	values := m.context(m.main.Stack.Settings)
	if err := checkSettings(m.main.Stack.StackName, values, m.options.given); err != nil {
		return "", "", err
	}
	bus := cmp.Or(m.main.Stack.Setting("eventBusName"), m.main.Stack.StackName)
	group, within := errgroup.WithContext(ctx)
	emulator := step(group, m.options.progress, "starting MiniStack", func() (*Emulator, error) {
		return StartEmulator(within, m.options.top, m.options.state, m.options.forFunctions)
	})
	ofPayhook := step(group, m.options.progress, "synthesizing Payhook", func() (string, error) {
		return cdk.Synth(within, m.options.top, "payhook.out", values)
	})
	ofConsumer := step(group, m.options.progress, "synthesizing the consumer", func() (string, error) {
		return cdk.Synth(within, filepath.Join(m.options.top, "events", "consumer"), "consumer.out",
			map[string]string{"eventBusName": bus, "stackName": consumerStack, "local": "true",
				"rules": strings.Join(checks.Rules(), ",")})
	})
	err = group.Wait()
	if m.emulator = <-emulator; m.emulator != nil {
		m.cdk, m.end = m.emulator.CDK(m.options.top), append(m.end, m.emulator.Stop)
	}
	return <-ofPayhook, <-ofConsumer, err
}

// step runs a step in a group, and returns the channel that has its result when the group has ended.
func step[T any](group *errgroup.Group, p *Progress, name string, do func() (T, error)) <-chan T {
	made := make(chan T, 1)
	group.Go(func() error {
		return p.Step(name, func() error {
			result, err := do()
			made <- result
			return err
		})
	})
	return made
}

// checkSettings returns an error that lists what is wrong with the context of the app. The app reports the
// same later, among messages of the CDK. Those of given are from the command line.
func checkSettings(name string, texts, given map[string]string) error {
	var s settings.Settings
	texts = maps.Clone(texts)
	delete(texts, settings.LocalKey)
	s.Add(texts, "infra/settings.json")
	s.Add(given, "-c")
	if _, err := s.Parse(settings.Stack{Name: name, Local: true}); err != nil {
		return cli.Usage("these settings are wrong:\n  %s", strings.ReplaceAll(err.Error(), "\n", "\n  "))
	}
	return nil
}

func (m *machine) startService() error {
	service, err := checks.ServiceOptions(m.options.settings)
	if err != nil {
		return err
	}
	service.Identity = m.identity
	m.service = paymenttest.NewServer(service)
	m.end = append(m.end, m.service.Close)
	m.options.progress.Say("the simulated payment service is at %s", m.service.URL)
	return nil
}

// context returns the context of the CDK app for a stack with settings.
func (m *machine) context(values map[string]string) map[string]string {
	values = maps.Clone(values)
	values[settings.LocalKey] = "true"
	values["baseUrl"], values["authUrl"] = m.service.URL, m.service.URL
	values["tokenManagerId"] = cmp.Or(values["tokenManagerId"], settings.ByKey("tokenManagerId").Example)
	return values
}

const (
	// localDomain is the domain of the endpoint where none is given. Clients of this machine
	// use 127.0.0.1, so it is not resolved.
	localDomain = "webhooks.payhook.test"
	// localCertificate stands for the server certificate in ACM, which the emulator does not read.
	localCertificate = "arn:aws:acm:" + Region + ":" + Account + ":certificate/11111111-2222-3333-4444-555555555555"
)

// newStack returns a stack with settings, which is not deployed yet. Settings of the endpoint
// that are needed and missing are added.
func (m *machine) newStack(values map[string]string) (*checks.Subject, error) {
	values = maps.Clone(values)
	add := func(key, value string) { values[key] = cmp.Or(values[key], value) }
	if checks.UsesMTLS(values) {
		add("domainName", localDomain)
		add("truststore", m.tlsFile("truststore"))
	}
	if values["domainName"] != "" {
		if values["hostedZoneId"] == "" {
			add("certificateArn", localCertificate)
		}
		if err := m.writeTLSFiles(); err != nil {
			return nil, err
		}
	}
	add("evidence", "1d")
	if checks.UsesSignature(values) {
		add("storeRejected", "7d") // the longest
	}
	return &checks.Subject{
		Stack: &stack.Stack{Local: true, Region: Region,
			StackName: settings.TextOf(values, "stackName"), PaymentService: m.service.URL,
			Settings: values, Given: m.options.given},
		Identity: m.identity, Timeout: 20 * time.Second, Sender: m.service.Sender(),
		Change: func(_ context.Context, do func(*paymenttest.State)) error { m.service.Change(do); return nil },
	}, nil
}

// tlsFile returns the path of a PEM file that all endpoints use.
func (m *machine) tlsFile(name string) string {
	return filepath.Join(m.options.state, "tls", name+".pem")
}

// writeTLSFiles writes the certificate of the endpoints' CA, and the client certificate of the
// payment service with its key and the truststore.
func (m *machine) writeTLSFiles() error {
	certificate := m.identity.Certificate
	key := paymenttest.EncodePrivateKey(certificate.PrivateKey)
	if err := os.MkdirAll(filepath.Dir(m.tlsFile("")), 0o700); err != nil {
		return err
	}
	for name, text := range map[string][]byte{"server-ca": m.serverCA.PEM(), "client-key": key,
		"client": paymenttest.EncodeCertificate(certificate.Leaf), "truststore": m.identity.CA.PEM()} {
		if err := os.WriteFile(m.tlsFile(name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) deploy(ctx context.Context, s *checks.Subject, assembly string) error {
	outputs, err := m.cdk.Deploy(ctx, assembly, nil, "Payhook")
	if err != nil {
		return err
	}
	return m.ready(ctx, s, outputs[s.Stack.StackName], stack.DefaultID)
}

// ready sets the names and addresses of the construct with an id in the deployed stack, starts its
// endpoint, and stores the client credentials, as a person does after the first deployment.
func (m *machine) ready(ctx context.Context, s *checks.Subject, outputs map[string]string, id string) error {
	s.Stack.AWS, s.Stack.Endpoint = m.emulator.AWS, m.emulator.Endpoint
	if err := s.Stack.SetOutputs(outputs, id); err != nil {
		return err
	}
	if domain := s.Stack.Setting("domainName"); domain != "" {
		if err := m.startAPIGateway(ctx, s, domain); err != nil {
			return err
		}
	} else {
		s.Stack.WebhookURL = stack.FunctionURL(s.Stack.Endpoint, s.Stack.WebhookURL)
	}
	if s == m.main {
		m.service.SetWebhookURL(s.Stack.WebhookURL)
	}
	id, secret := m.service.Client()
	return s.StoreCredentials(ctx, id, secret)
}

// startAPIGateway starts what replaces API Gateway. The emulator serves no TLS.
func (m *machine) startAPIGateway(ctx context.Context, s *checks.Subject, domain string) error {
	functions, name := lambda.NewFromConfig(s.Stack.AWS), s.Stack.Functions["webhook"]
	function, err := functions.GetFunctionConfiguration(ctx, &lambda.GetFunctionConfigurationInput{FunctionName: &name})
	if err != nil {
		return err
	}
	api := httpAPI{Domain: domain, ID: function.Environment.Variables[settings.APIIDEnv], Function: name}
	if checks.UsesMTLS(s.Stack.Settings) {
		path := s.Stack.Settings["truststore"]
		if !filepath.IsAbs(path) {
			path = filepath.Join(m.options.top, path)
		}
		if api.Truststore, err = os.ReadFile(path); err != nil {
			return err
		}
	}
	log, err := os.OpenFile(filepath.Join(m.options.state, "apigateway.log"),
		os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	m.end = append(m.end, func() { log.Close() })
	e, err := startAPIGateway(api, functions, m.serverCA.Server(domain), log)
	if err != nil {
		return err
	}
	m.end = append(m.end, e.Close)
	m.options.progress.Say("in place of API Gateway: %s at %s", domain, e.URL)
	s.Stack.WebhookURL, s.Stack.ServerCA = e.URL, m.tlsFile("server-ca")
	// Another truststore does not have the CA of the simulated service.
	if s.Stack.Settings["truststore"] == m.tlsFile("truststore") {
		s.Stack.ClientCert, s.Stack.ClientKey = m.tlsFile("client"), m.tlsFile("client-key")
	}
	return nil
}
