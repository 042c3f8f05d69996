package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"payhook.example/infra/deployment"
	"payhook.example/infra/local/apigateway"
	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

const (
	region        = "us-east-1"
	account       = "000000000000"
	consumerStack = "PayhookConsumer"
)

// options say what is to be started.
type options struct {
	top      string            // of the project
	state    string            // the folder, of one's own, in which everything is written; below .local
	settings map[string]string // by their keys; the defaults for those that are not there
	given    map[string]string // those of settings that are not from cdk.json
	// baseURL and authURL are those of a payment service that runs already, for keys
	// and for tokens; "" for the simulated one.
	baseURL, authURL string
	// clientID and clientSecret are for authURL; without them, the secret for them
	// stays empty.
	clientID, clientSecret string
	// truststore is a PEM file with CAs of client certificates, instead of the
	// simulated payment service's; "" for that one's.
	truststore string
	// endpointFor gives the endpoint of the AWS APIs that the functions are told,
	// from the emulator's; the emulator's own if nil.
	endpointFor func(string) (string, error)
	// further says that a stack for each mechanism with client certificates is
	// synthesized as well, to be deployed later.
	further bool
	// capture says that rejected webhooks are stored unless the settings say otherwise.
	capture  bool
	wide     bool // the table may be wider than the terminal
	progress *progress
}

// stack is everything that runs on this machine: the emulator with Payhook and
// a consumer deployed into it, and the simulated payment service.
type stack struct {
	deployment.Deployment
	service  *paymenttest.Server // nil if it is not the simulated one
	shown    Service             // the service that the table is shown with
	lacks    map[Need]string     // what cannot be shown here, and why
	client   *http.Client        // calls the protected API; direct if nil
	emulator *emulator
	opts     options
	lock     *lock
	consumer Consumer

	claimBucket string

	// Of mutual TLS: the payment service's certificates, the CA of the endpoint's
	// certificate, and the endpoint, if there is one.
	identity *paymenttest.Identity
	serverCA *paymenttest.CA
	endpoint *apigateway.Endpoint
	special  Certificates

	further []*stack // as options.further says
}

// with returns the stack with other settings, which are not deployed yet.
func (s *stack) with(conf map[string]string) *stack {
	changed := &stack{Deployment: s.Deployment, service: s.service, shown: s.shown, emulator: s.emulator,
		opts: s.opts, identity: s.identity, serverCA: s.serverCA, endpoint: s.endpoint, special: s.special}
	changed.opts.settings = maps.Clone(s.opts.settings)
	maps.Copy(changed.opts.settings, conf)
	return changed
}

// start starts everything, or nothing if it fails or ctx ends. The caller must
// stop what it returns.
func start(ctx context.Context, o options) (_ *stack, err error) {
	if err := os.MkdirAll(o.state, 0o700); err != nil {
		return nil, err
	}
	if o.endpointFor == nil {
		o.endpointFor = func(own string) (string, error) { return own, nil }
	}
	s := &stack{opts: o}
	if s.lock, err = lockFolder(o.state); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if endLeftovers(o.state) {
		o.progress.say("ended what an earlier run had left behind")
	}
	if _, err := findTools(); err != nil {
		return nil, err
	}
	s.Given = o.given
	s.opts.settings = withCapture(o)
	s.newIdentity()
	if err := s.startService(); err != nil {
		return nil, err
	}
	if s.opts.settings, err = s.completeSettings(s.opts.settings); err != nil {
		return nil, err
	}
	if o.further {
		if err := s.addFurther(); err != nil {
			return nil, err
		}
	}
	if err := s.deploy(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// withCapture returns the settings of o with captureRefused if that is to be on. It cannot
// be where nothing is signed.
func withCapture(o options) map[string]string {
	if _, given := o.settings[settings.CaptureRefused.Key]; given || !o.capture || !usesSignature(o.settings) {
		return o.settings
	}
	conf := maps.Clone(o.settings)
	if conf == nil {
		conf = map[string]string{}
	}
	conf[settings.CaptureRefused.Key] = "7d" // the longest
	return conf
}

// stop ends everything and returns when no process is left.
func (s *stack) stop() {
	for _, with := range append(s.further, s) {
		if with.endpoint != nil {
			with.endpoint.Close()
		}
	}
	if s.emulator != nil {
		s.emulator.stop(0) // it keeps nothing, so it loses nothing
		forget(s.opts.state)
	}
	if s.service != nil {
		s.service.Close()
	}
	s.lock.release()
}

func (s *stack) log(name string) string { return filepath.Join(s.opts.state, name+".log") }

// setting returns the text of a setting as it is deployed.
func (s *stack) setting(which *settings.Setting) string { return settingOr(s.opts.settings, which) }

func settingOr(conf map[string]string, which *settings.Setting) string {
	if v, ok := conf[which.Key]; ok {
		return v
	}
	return which.Default
}

// schemeOf reads where the proof of a webhook travels from the settings.
func schemeOf(conf map[string]string) (signature.Scheme, signature.Format, error) {
	timestamp, errTimestamp := signature.ParseCarrier(settingOr(conf, settings.TimestampCarrier))
	keyID, errKeyID := signature.ParseKeyIDCarrier(settingOr(conf, settings.KeyIDCarrier))
	format, errFormat := signature.ParseFormat(settingOr(conf, settings.TimestampFormat))
	return signature.Scheme{SignatureHeader: settingOr(conf, settings.SignatureHeader), Timestamp: timestamp,
			KeyID: keyID},
		format, errors.Join(errTimestamp, errKeyID, errFormat)
}

func (s *stack) startService() error {
	s.PaymentService = s.opts.baseURL
	if s.opts.baseURL != "" && s.opts.authURL != "" {
		return nil
	}
	scheme, format, err := schemeOf(s.opts.settings)
	if err != nil {
		return err
	}
	s.service, err = paymenttest.Start(paymenttest.Options{
		Scheme: scheme, TimestampFormat: format, Method: s.setting(settings.HTTPMethod),
		TokenManagerID: s.tokenManagerID(),
		FormEncoded:    s.setting(settings.CredentialEncoding) == "form",
		KeysBearer:     s.setting(settings.KeysAuth) == "bearer",
		Control:        true,
		Identity:       s.identity,
	})
	if err != nil {
		return err
	}
	s.shown = ownService{s.service}
	s.opts.progress.say("the simulated payment service is at %s", s.service.URL)
	if s.opts.baseURL == "" {
		s.opts.baseURL = s.service.URL
		s.PaymentService, s.Simulated = s.service.URL, true
	}
	if s.opts.authURL == "" {
		s.opts.authURL = s.service.URL
		s.opts.clientID, s.opts.clientSecret = s.service.Client()
	}
	return nil
}

func (s *stack) tokenManagerID() string {
	if id := s.setting(settings.TokenManagerID); id != "" {
		return id
	}
	return settings.TokenManagerID.Example
}

// context is what is given to the CDK app.
func (s *stack) context() []string {
	values := maps.Clone(s.opts.settings)
	if values == nil {
		values = map[string]string{}
	}
	values[settings.Local.Key] = "true"
	values[settings.BaseURL.Key] = s.opts.baseURL
	values[settings.AuthURL.Key] = s.opts.authURL
	values[settings.TokenManagerID.Key] = s.tokenManagerID()
	if len(s.further) > 0 {
		values[furtherStacks] = s.furtherSettings()
	}
	return contextFlags(values)
}

func contextFlags(values map[string]string) []string {
	var flags []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		flags = append(flags, "-c", key+"="+values[key])
	}
	return flags
}

// deploy starts the emulator and deploys both stacks, doing side by side what
// does not wait for each other.
func (s *stack) deploy(ctx context.Context) error {
	p, t := s.opts.progress, tools{s.opts.top}
	consumer := filepath.Join(s.opts.top, "events", "consumer")
	bus := s.setting(settings.EventBusName)
	if bus == "" {
		bus = settings.DefaultBusName(s.setting(settings.StackName))
	}
	payhookOut, consumerOut := s.assembly(), filepath.Join(s.opts.state, "consumer.out")

	err := atOnce(ctx,
		func(ctx context.Context) error { return t.install(ctx, p, s.log("install")) },
		func(ctx context.Context) error {
			// Both apps share the CDK's library, which takes its time to compile for
			// the first time: once, not twice.
			return p.step("compiling (minutes the first time, seconds after that)", func() error {
				build := exec.Command("go", "build", "-o", filepath.Join(s.opts.state, "compiled")+"/", "./infra",
					"./events/consumer")
				build.Dir = s.opts.top
				if err := os.MkdirAll(filepath.Join(s.opts.state, "compiled"), 0o700); err != nil {
					return err
				}
				return logged(ctx, s.log("compile"), build)
			})
		},
	)
	if err != nil {
		return err
	}
	err = atOnce(ctx,
		func(ctx context.Context) error {
			return p.step("starting MiniStack", func() (err error) {
				if s.emulator, err = startEmulator(ctx, t, s.opts.state, s.opts.endpointFor); err != nil {
					return err
				}
				s.Endpoint, s.Region = s.emulator.endpoint, region
				s.AWS = awsConfig(s.Endpoint)
				if err := remember(s.opts.state, s.emulator.pid); err != nil {
					return err
				}
				return s.cdk(ctx, "bootstrap", s.Endpoint, s.opts.state, "bootstrap", "aws://"+account+"/"+region)
			})
		},
		func(ctx context.Context) error {
			return p.step("synthesizing Payhook", func() error {
				args := append([]string{"synth", "--quiet", "--output", payhookOut}, s.context()...)
				return s.cdk(ctx, "synth", "", s.opts.top, args...)
			})
		},
		func(ctx context.Context) error {
			return p.step("synthesizing the consumer", func() error {
				return s.cdk(ctx, "synth-consumer", "", consumer, "synth", "--quiet", "--output", consumerOut,
					"-c", "eventBusName="+bus, "-c", "stackName="+consumerStack,
					"-c", "rules="+strings.Join(deployedRules, ","), "-c", "local=true",
					// The emulator delivers to buses of the same account only.
					"-c", "sourceAccount="+account, "-c", "targetBus="+otherBusARN)
			})
		},
	)
	if err != nil {
		return err
	}
	var outputs map[string]string
	err = p.step("cdk deploy of Payhook", func() (err error) {
		outputs, err = s.deployStack(ctx, "deploy", payhookOut, "Payhook")
		return err
	})
	if err != nil {
		return err
	}
	err = p.step("cdk deploy of the consumer", func() (err error) {
		return s.deployConsumer(ctx, consumerOut, outputs[names.ClaimBucketOutput])
	})
	if err != nil {
		return err
	}
	if err := s.readOutputs(ctx, outputs); err != nil {
		return err
	}
	return s.fillCredentials(ctx)
}

// fillCredentials does what a person does after the first deployment.
func (s *stack) fillCredentials(ctx context.Context) error {
	if s.CredentialsSecret == "" || s.opts.clientID == "" {
		return nil
	}
	value, err := json.Marshal(map[string]string{"client_id": s.opts.clientID, "client_secret": s.opts.clientSecret})
	if err != nil {
		return err
	}
	_, err = secretsmanager.NewFromConfig(s.AWS).PutSecretValue(ctx, &secretsmanager.PutSecretValueInput{
		SecretId: &s.CredentialsSecret, SecretString: aws.String(string(value)),
	})
	return err
}

// cdk runs the CDK CLI in a folder, with that endpoint for AWS.
func (s *stack) cdk(ctx context.Context, log, endpoint, folder string, args ...string) error {
	environment := emulatorEnvironment(s.opts.top)
	if endpoint != "" {
		environment = append(environment, "AWS_ENDPOINT_URL="+endpoint)
	}
	return CDK(ctx, s.opts.top, s.log(log), folder, environment, args...)
}

// emulatorEnvironment is the environment of the CDK CLI for the emulator.
func emulatorEnvironment(top string) []string {
	return append(environmentWithout("AWS_"),
		"AWS_ACCESS_KEY_ID="+accessKey, "AWS_SECRET_ACCESS_KEY="+accessKey, "AWS_REGION="+region,
		"AWS_DEFAULT_REGION="+region,
		// Nothing of this machine's AWS configuration may play a part.
		"AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull, "AWS_EC2_METADATA_DISABLED=true",
		"CDK_DISABLE_VERSION_CHECK=1", "CDK_DISABLE_CLI_TELEMETRY=true",
		// The CDK's rules for templates are checked by the tests of infra and at
		// every deployment to AWS. Here they would cost half of the time.
		"CDK_VALIDATION=false",
		// Node 22 and newer keep there what they have compiled.
		"NODE_COMPILE_CACHE="+filepath.Join(top, ".local", "node"),
		"NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost",
	)
}

// assembly is the folder with the templates of Payhook's stacks.
func (s *stack) assembly() string { return filepath.Join(s.opts.state, "payhook.out") }

// deployStack deploys one stack of an assembly, by its path there, and returns its
// outputs.
func (s *stack) deployStack(ctx context.Context, log, assembly, path string) (map[string]string, error) {
	stacks, err := s.deployStacks(ctx, log, assembly, nil, path)
	if err != nil {
		return nil, err
	}
	for name, outputs := range stacks {
		s.Stack = name
		return outputs, nil
	}
	return nil, fmt.Errorf("%s: no stack was deployed", assembly)
}

// deployStacks deploys stacks of an assembly at once, by their paths there, and
// returns the outputs of each by its name. Parameters are STACK:NAME=VALUE.
func (s *stack) deployStacks(ctx context.Context, log, assembly string, parameters []string,
	paths ...string) (map[string]map[string]string, error) {
	file := filepath.Join(s.opts.state, log+".outputs.json")
	args := append([]string{"deploy"}, paths...)
	for _, parameter := range parameters {
		args = append(args, "--parameters", parameter)
	}
	if err := s.cdk(ctx, log, s.Endpoint, s.opts.state,
		append(args, "--app", assembly, "--concurrency", strconv.Itoa(len(paths)),
			"--require-approval", "never", "--progress", "events", "--outputs-file", file)...); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var stacks map[string]map[string]string
	return stacks, json.Unmarshal(text, &stacks)
}

func (s *stack) readOutputs(ctx context.Context, outputs map[string]string) error {
	hook, err := url.Parse(outputs[names.WebhookURLOutput])
	if err != nil || hook.Host == "" {
		return errors.New("the stack has no output WebhookUrl")
	}
	if domain := s.setting(settings.DomainName); domain != "" {
		if err := s.startEndpoint(ctx, domain); err != nil {
			return err
		}
	} else {
		// The host of the URL does not resolve on every machine; this way to the same
		// function does.
		s.WebhookURL = FunctionURL(s.Endpoint, hook.String())
		s.ServerCA, s.ClientCert, s.ClientKey, s.APIID = "", "", "", ""
	}
	s.readNames(outputs)
	return nil
}

// FunctionURL returns the URL at which this machine reaches a function URL of the emulator
// at an endpoint.
func FunctionURL(endpoint, functionURL string) string {
	_, host, _ := strings.Cut(functionURL, "://")
	id, _, _ := strings.Cut(host, ".")
	return endpoint + "/_aws/lambda-url/" + id + "/"
}

// readNames reads the names of what the stack has.
func (s *stack) readNames(outputs map[string]string) {
	s.SetOutputs(outputs)
	s.claimBucket = outputs[names.ClaimBucketOutput]
	s.Settings = s.opts.settings
}

const accessKey = deployment.AccessKey // the emulator takes any

func awsConfig(endpoint string) aws.Config {
	return deployment.EmulatorConfig(endpoint, region)
}

func environmentWithout(prefix string) []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, prefix) })
}
