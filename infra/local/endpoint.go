package local

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"payhook.example/infra/local/apigateway"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

const (
	// localDomain is the domain of the endpoint where none is given. Nobody looks it
	// up: clients of this machine use 127.0.0.1.
	localDomain = "webhooks.payhook.test"
	// localCertificate stands for the server certificate in ACM, which the emulator
	// does not look at.
	localCertificate = "arn:aws:acm:" + region + ":" + account + ":certificate/11111111-2222-3333-4444-555555555555"
)

// usesMTLS reports whether webhooks need a client certificate.
func usesMTLS(conf map[string]string) bool {
	return settingOr(conf, settings.Authentication) != settings.BySignature
}

// usesSignature reports whether webhooks need a signature.
func usesSignature(conf map[string]string) bool {
	return settingOr(conf, settings.Authentication) != settings.ByMTLS
}

// tlsFiles are those of the endpoint, below the state of a run.
type tlsFiles struct{ serverCA, clientCert, clientKey, truststore string }

func (s *stack) tlsFiles() tlsFiles {
	folder := filepath.Join(s.opts.state, "tls")
	return tlsFiles{
		serverCA: filepath.Join(folder, "server-ca.pem"), clientCert: filepath.Join(folder, "client.pem"),
		clientKey: filepath.Join(folder, "client-key.pem"), truststore: filepath.Join(folder, "truststore.pem"),
	}
}

// newIdentity makes the CAs of both sides: that of the endpoint's certificate, and
// the payment service's, which issues client certificates.
func (s *stack) newIdentity() {
	s.serverCA = paymenttest.NewCA("Local Server CA")
	s.identity = paymenttest.NewIdentity(s.serverCA.Certificate)
}

// completeSettings returns settings with those of the endpoint that are needed and
// not given.
func (s *stack) completeSettings(conf map[string]string) (map[string]string, error) {
	conf = maps.Clone(conf)
	if conf == nil {
		conf = map[string]string{}
	}
	mtls := usesMTLS(conf)
	if s.opts.truststore != "" && !mtls {
		return nil, errors.New("a truststore needs the setting authentication=mtls or authentication=both")
	}
	if mtls && conf[settings.DomainName.Key] == "" {
		conf[settings.DomainName.Key] = localDomain
	}
	if conf[settings.DomainName.Key] == "" {
		return conf, nil
	}
	if conf[settings.CertificateARN.Key] == "" && conf[settings.HostedZoneID.Key] == "" {
		conf[settings.CertificateARN.Key] = localCertificate
	}
	if err := s.writeTLSFiles(mtls); err != nil {
		return nil, err
	}
	if mtls && conf[settings.Truststore.Key] == "" {
		conf[settings.Truststore.Key] = s.tlsFiles().truststore
		if s.opts.truststore != "" {
			conf[settings.Truststore.Key] = s.opts.truststore
		}
	}
	return conf, nil
}

func (s *stack) writeTLSFiles(mtls bool) error {
	files := s.tlsFiles()
	if err := os.MkdirAll(filepath.Dir(files.serverCA), 0o700); err != nil {
		return err
	}
	contents := map[string][]byte{files.serverCA: s.serverCA.PEM()}
	if mtls {
		certificate := s.identity.Certificate()
		key, err := paymenttest.EncodePrivateKey(certificate.PrivateKey)
		if err != nil {
			return err
		}
		contents[files.clientKey] = key
		contents[files.clientCert] = paymenttest.EncodeCertificate(certificate.Leaf)
		if contents[files.truststore], err = TruststoreOf(s.identity); err != nil {
			return err
		}
	}
	for file, text := range contents {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// TruststoreOf returns the CA of the payment service, and of the CAs below it that
// issue flawed certificates those that a truststore may hold. Without them, these
// certificates would be rejected for another reason than their flaw.
func TruststoreOf(identity *paymenttest.Identity) ([]byte, error) {
	text := identity.CA.PEM()
	above, err := identity.Above()
	if err != nil {
		return nil, err
	}
	for _, c := range above {
		longer := bytes.Join([][]byte{text, paymenttest.EncodeCertificate(c)}, nil)
		if _, err := clientcert.ParseTruststore(longer, time.Now()); err == nil {
			text = longer
		}
	}
	return text, nil
}

// startEndpoint starts the endpoint that replaces API Gateway, or tells the one that
// runs what is deployed now.
func (s *stack) startEndpoint(ctx context.Context, domain string) error {
	api, err := apigateway.Read(ctx, s.AWS, account, domain)
	if err != nil {
		return err
	}
	files := s.tlsFiles()
	if s.endpoint != nil {
		if err := s.endpoint.Deploy(api); err != nil {
			return err
		}
	} else {
		log, err := os.OpenFile(s.log("endpoint"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		s.endpoint, err = apigateway.Start(api, lambda.NewFromConfig(s.AWS), apigateway.Options{
			Certificate: s.serverCA.Server(domain), Log: slog.New(slog.NewTextHandler(log, nil)), Closer: log,
		})
		if err != nil {
			log.Close()
			return err
		}
		// The emulator serves no TLS.
		s.opts.progress.say("in place of API Gateway: %s at %s", domain, s.endpoint.URL)
	}
	s.WebhookURL, s.ServerCA, s.APIID = s.endpoint.URL, files.serverCA, api.ID
	s.ClientCert, s.ClientKey = "", ""
	// A truststore of somebody else's does not know the simulated service.
	if len(api.Truststore) > 0 && s.opts.truststore == "" {
		s.ClientCert, s.ClientKey = files.clientCert, files.clientKey
	}
	return nil
}

// certificateFlaws are flaws that the table shows, and what becomes of each: the
// endpoint answers 403, the function 401. 0 is for a connection that fails; AWS does not document
// whether API Gateway answers 403 instead.
var certificateFlaws = []struct {
	flaw   paymenttest.CertificateFlaw
	sent   string
	status int
}{
	{paymenttest.NoCertificate, "no client certificate", 0},
	{paymenttest.CertificateExpired, "client certificate expired", 403},
	{paymenttest.UnknownCA, "client certificate of an unknown CA", 403},
	{paymenttest.SameSubjectOtherCA, "client certificate of another CA with the CA's name", 403},
	{paymenttest.ForgedSignature, "client certificate with a forged signature", 403},
	{paymenttest.ServerUsage, "certificate for servers only", 401},
}

// certificateRows are what is wrong with a client certificate, or new about it.
func (s *stack) certificateRows() []*row {
	next := s.special.Next
	if next.Leaf == nil {
		next = s.identity.Next()
	}
	renewed := s.accepted("one with the service's next client certificate", deliver(paymenttest.Event()))
	renewed.certificate = &next
	rows := []*row{renewed}
	if s.special.Revoked.Leaf != nil {
		revoked, unpinned := rejected("client certificate revoked", deliver(paymenttest.Event())),
			rejected("client certificate not pinned", deliver(paymenttest.Event()))
		revoked.certificate, unpinned.certificate = &s.special.Revoked, &s.special.Unpinned
		rows = append(rows, revoked, unpinned)
	}
	for _, f := range certificateFlaws {
		w := deliver(paymenttest.Event())
		w.Certificate = f.flaw
		rows = append(rows, &row{sent: f.sent, webhook: w, status: f.status, byAWS: f.status == http.StatusForbidden,
			noAnswer: f.status == 0})
	}
	imitated := deliver(paymenttest.Event())
	imitated.Certificate, imitated.Header = paymenttest.UnknownCA, imitations(s.identity.Certificate())
	return about(ofCertificates, append(rows, &row{sent: "the right certificate in headers, another in TLS",
		webhook: imitated, status: http.StatusForbidden, byAWS: true})...)
}

// imitations are headers in which other gateways pass on certificates.
func imitations(certificate tls.Certificate) map[string][]string {
	text := strings.ReplaceAll(string(paymenttest.EncodeCertificate(certificate.Leaf)), "\n", "%0A")
	return map[string][]string{
		"X-Amzn-Mtls-Clientcert":  {text},
		"X-Forwarded-Client-Cert": {fmt.Sprintf("Hash=%s;Cert=%q", clientcert.Fingerprint(certificate.Leaf), text)},
	}
}
