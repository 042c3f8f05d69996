package local

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"payhook.example/infra/checks"
	"payhook.example/infra/deployment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

const (
	// localDomain is the domain of the endpoint where none is given. Clients of this machine
	// use 127.0.0.1, so it is not resolved.
	localDomain = "webhooks.payhook.test"
	// localCertificate stands for the server certificate in ACM, which the emulator does not
	// read.
	localCertificate = "arn:aws:acm:" + Region + ":" + Account +
		":certificate/11111111-2222-3333-4444-555555555555"
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
		add("captureRejected", "7d") // the longest
	}
	s := &checks.Subject{
		Deployment: &deployment.Deployment{Local: true, Region: Region,
			Stack: settings.TextIn(values, "stackName"), PaymentService: m.service.URL,
			Settings: values, Given: m.given},
		Identity: m.identity, Timeout: 20 * time.Second, Sender: m.service.Sender(),
		Change: func(_ context.Context, do func(*paymenttest.State)) error { m.service.Change(do); return nil }}
	return s, nil
}

// tlsFile returns the path of a PEM file that all endpoints use.
func (m *machine) tlsFile(name string) string { return filepath.Join(m.state, "tls", name+".pem") }

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

// deploy deploys the stack, whose template an assembly has.
func (m *machine) deploy(ctx context.Context, s *checks.Subject, assembly string) error {
	outputs, err := m.cdk.Deploy(ctx, assembly, nil, "Payhook")
	if err != nil {
		return err
	}
	return m.ready(ctx, s, outputs[s.Stack], deployment.DefaultID)
}

// ready sets the names and addresses of the construct with an id in the deployed stack, starts its
// endpoint, and stores the client credentials, as a person does after the first deployment.
func (m *machine) ready(ctx context.Context, s *checks.Subject, outputs map[string]string, id string) error {
	s.AWS, s.Endpoint = m.emulator.AWS, m.emulator.Endpoint
	if err := s.SetOutputs(outputs, id); err != nil {
		return err
	}
	if domain := s.Setting("domainName"); domain != "" {
		if err := m.startEndpoint(ctx, s, domain); err != nil {
			return err
		}
	} else {
		s.WebhookURL = deployment.FunctionURL(s.Endpoint, s.WebhookURL)
	}
	if s == m.main {
		m.service.SetWebhookURL(s.WebhookURL)
	}
	id, secret := m.service.Client()
	return s.StoreCredentials(ctx, id, secret)
}

// startEndpoint starts the endpoint that replaces API Gateway. The emulator serves no TLS.
func (m *machine) startEndpoint(ctx context.Context, s *checks.Subject, domain string) error {
	functions, name := lambda.NewFromConfig(s.AWS), s.Functions["webhook"]
	function, err := functions.GetFunctionConfiguration(ctx, &lambda.GetFunctionConfigurationInput{FunctionName: &name})
	if err != nil {
		return err
	}
	api := httpAPI{Domain: domain, ID: function.Environment.Variables[settings.APIIDEnv],
		Function: name}
	if checks.UsesMTLS(s.Settings) {
		path := s.Settings["truststore"]
		if !filepath.IsAbs(path) {
			path = filepath.Join(m.top, path)
		}
		if api.Truststore, err = os.ReadFile(path); err != nil {
			return err
		}
	}
	log, err := os.OpenFile(filepath.Join(m.state, "endpoint.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	m.end = append(m.end, func() { log.Close() })
	e, err := startEndpoint(api, functions, m.serverCA.Server(domain), log)
	if err != nil {
		return err
	}
	m.end = append(m.end, e.Close)
	m.progress.Say("in place of API Gateway: %s at %s", domain, e.URL)
	s.WebhookURL, s.ServerCA = e.URL, m.tlsFile("server-ca")
	// Another truststore does not have the CA of the simulated service.
	if s.Settings["truststore"] == m.tlsFile("truststore") {
		s.ClientCert, s.ClientKey = m.tlsFile("client"), m.tlsFile("client-key")
	}
	return nil
}
