package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	ebtypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"payhook.example/infra/deployment"
	"payhook.example/infra/local/emulator"
	"payhook.example/infra/local/endpoint"
	"payhook.example/infra/local/scenario"
	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

const (
	// localDomain is the domain of the endpoint where none is given. Clients of this machine
	// use 127.0.0.1, so it is not resolved.
	localDomain = "webhooks.payhook.test"
	// localCertificate stands for the server certificate in ACM, which the emulator does not
	// read.
	localCertificate = "arn:aws:acm:" + emulator.Region + ":" + emulator.Account +
		":certificate/11111111-2222-3333-4444-555555555555"
)

// stack is one Payhook on this machine, with the endpoint that replaces API Gateway if it has a
// domain.
type stack struct {
	scenario.Scenario
	machine  *machine
	endpoint *endpoint.Endpoint
	log      io.Closer // of the endpoint
}

// newStack returns a stack with settings, which is not deployed yet. Settings of the endpoint
// that are needed and missing are added.
func (m *machine) newStack(values map[string]string) (*stack, error) {
	values = maps.Clone(values)
	mtls := scenario.UsesMTLS(values)
	if m.opts.truststore != "" && !mtls {
		return nil, errors.New("a truststore needs the setting authentication=mtls or authentication=both")
	}
	if mtls && values[settings.DomainName.Key] == "" {
		values[settings.DomainName.Key] = localDomain
	}
	if values[settings.DomainName.Key] != "" {
		if values[settings.CertificateARN.Key] == "" && values[settings.HostedZoneID.Key] == "" {
			values[settings.CertificateARN.Key] = localCertificate
		}
		if err := m.writeTLSFiles(mtls); err != nil {
			return nil, err
		}
		if mtls && values[settings.Truststore.Key] == "" {
			values[settings.Truststore.Key] = m.tlsFiles().truststore
			if m.opts.truststore != "" {
				values[settings.Truststore.Key] = m.opts.truststore
			}
		}
	}
	s := &stack{machine: m,
		Deployment: &deployment.Deployment{Local: true, Region: emulator.Region,
			Stack: scenario.Setting(values, settings.StackName), PaymentService: m.opts.baseURL,
			Settings: values, Given: m.opts.given},
		Identity: m.identity, Client: emulator.Direct, Progress: m.opts.progress}
	if m.service != nil {
		s.Service = scenario.Own{Server: m.service}
		s.Simulated, s.OtherTokens = m.opts.baseURL == m.service.URL, m.opts.authURL != m.service.URL
	}
	s.Event = func(r *http.Request, body []byte) ([]byte, error) {
		return s.endpoint.Event(r, body, m.identity.Certificate().Leaf)
	}
	return s, nil
}

// tlsFiles are the paths of the PEM files of all endpoints.
type tlsFiles struct{ serverCA, clientCert, clientKey, truststore string }

func (m *machine) tlsFiles() tlsFiles {
	folder := filepath.Join(m.opts.state, "tls")
	return tlsFiles{
		serverCA: filepath.Join(folder, "server-ca.pem"), clientCert: filepath.Join(folder, "client.pem"),
		clientKey: filepath.Join(folder, "client-key.pem"), truststore: filepath.Join(folder, "truststore.pem"),
	}
}

func (m *machine) writeTLSFiles(mtls bool) error {
	files := m.tlsFiles()
	if err := os.MkdirAll(filepath.Dir(files.serverCA), 0o700); err != nil {
		return err
	}
	contents := map[string][]byte{files.serverCA: m.serverCA.PEM()}
	if mtls {
		certificate := m.identity.Certificate()
		key, err := paymenttest.EncodePrivateKey(certificate.PrivateKey)
		if err != nil {
			return err
		}
		contents[files.clientKey] = key
		contents[files.clientCert] = paymenttest.EncodeCertificate(certificate.Leaf)
		contents[files.truststore] = m.identity.CA.PEM()
	}
	for file, text := range contents {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// deploy deploys the stack of an assembly.
func (s *stack) deploy(ctx context.Context, assembly string) error {
	stacks, err := s.machine.cdk.Deploy(ctx, assembly, nil, "Payhook")
	if err != nil {
		return err
	}
	return s.ready(ctx, stacks[s.Stack])
}

// ready sets the names and addresses of the deployed stack, starts its endpoint, and stores the
// client credentials, as a person does after the first deployment.
func (s *stack) ready(ctx context.Context, outputs map[string]string) error {
	s.AWS, s.Endpoint = s.machine.emulator.AWS, s.machine.emulator.Endpoint
	if err := s.SetOutputs(outputs); err != nil {
		return err
	}
	if domain := s.Setting(settings.DomainName); domain != "" {
		if err := s.startEndpoint(ctx, domain); err != nil {
			return err
		}
	} else {
		if outputs[names.WebhookURLOutput] == "" {
			return errors.New("the stack has no output " + names.WebhookURLOutput)
		}
		s.WebhookURL = emulator.FunctionURL(s.Endpoint, outputs[names.WebhookURLOutput])
	}
	if s.CredentialsSecret == "" || s.machine.opts.clientID == "" {
		return nil
	}
	value, err := json.Marshal(map[string]string{"client_id": s.machine.opts.clientID,
		"client_secret": s.machine.opts.clientSecret})
	if err != nil {
		return err
	}
	_, err = secretsmanager.NewFromConfig(s.AWS).PutSecretValue(ctx, &secretsmanager.PutSecretValueInput{
		SecretId: &s.CredentialsSecret, SecretString: aws.String(string(value)),
	})
	return err
}

// startEndpoint starts the endpoint.
func (s *stack) startEndpoint(ctx context.Context, domain string) error {
	api, err := endpoint.Read(ctx, s.AWS, emulator.Account, domain)
	if err != nil {
		return err
	}
	files := s.machine.tlsFiles()
	log, err := os.OpenFile(filepath.Join(s.machine.opts.state, "endpoint.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND,
		0o600)
	if err != nil {
		return err
	}
	if s.endpoint, err = endpoint.Start(api, lambda.NewFromConfig(s.AWS), s.machine.serverCA.Server(domain),
		log); err != nil {
		log.Close()
		return err
	}
	s.log = log
	s.machine.started = append(s.machine.started, s)
	// The emulator serves no TLS.
	s.Progress.Say("in place of API Gateway: %s at %s", domain, s.endpoint.URL)
	s.WebhookURL, s.ServerCA = s.endpoint.URL, files.serverCA
	// Another truststore does not have the CA of the simulated service.
	if len(api.Truststore) > 0 && s.machine.opts.truststore == "" {
		s.ClientCert, s.ClientKey = files.clientCert, files.clientKey
	}
	return nil
}

// close ends the endpoint.
func (s *stack) close() {
	s.endpoint.Close()
	s.log.Close()
}

// subscribe creates a queue behind a rule for released payments.
func (s *stack) subscribe(ctx context.Context) error {
	pattern, err := os.ReadFile(filepath.Join(s.machine.opts.top, "events", "rules", scenario.Released+".json"))
	if err != nil {
		return err
	}
	name := s.Stack + "-" + scenario.Released
	rules := eventbridge.NewFromConfig(s.AWS)
	rule, err := rules.PutRule(ctx,
		&eventbridge.PutRuleInput{Name: &name, EventBusName: &s.Bus, EventPattern: aws.String(string(pattern))})
	if err != nil {
		return err
	}
	arn := fmt.Sprintf("arn:aws:sqs:%s:%s:%s", emulator.Region, emulator.Account, name)
	queue, err := sqs.NewFromConfig(s.AWS).CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name,
		Attributes: map[string]string{
			string(sqstypes.QueueAttributeNamePolicy): fmt.Sprintf(`{"Version":"2012-10-17","Statement":[{`+
				`"Effect":"Allow","Principal":{"Service":"events.amazonaws.com"},"Action":"sqs:SendMessage",`+
				`"Resource":%q,"Condition":{"ArnEquals":{"aws:SourceArn":%q}}}]}`, arn, *rule.RuleArn),
		}})
	if err != nil {
		return err
	}
	put, err := rules.PutTargets(ctx, &eventbridge.PutTargetsInput{Rule: &name, EventBusName: &s.Bus,
		Targets: []ebtypes.Target{{Id: aws.String("Queue"), Arn: &arn}}})
	if err == nil && put.FailedEntryCount > 0 {
		err = fmt.Errorf("rule %s has no target: %s", name, aws.ToString(put.FailedEntries[0].ErrorMessage))
	}
	s.Queues = map[string]string{scenario.Released: aws.ToString(queue.QueueUrl)}
	return err
}
