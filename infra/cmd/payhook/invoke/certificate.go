package invoke

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"

	"payhook.example/infra/local/apigateway"
	"payhook.example/shared/settings"
)

// authentication is the mechanism of the local run, or signature in the cloud.
func (o *options) authentication() string {
	if text, ok := o.local.Settings[settings.Authentication.Key]; ok {
		return text
	}
	return settings.Authentication.Default
}

// present makes an event one of the HTTP API of the local run, with the client
// certificate of the simulated service, if webhooks need one there. Otherwise it
// leaves the event as it is.
func (o *options) present(request map[string]any) error {
	if o.authentication() == settings.BySignature {
		return nil
	}
	if o.local.ClientCert == "" {
		return errors.New("the event needs a client certificate of a CA in the truststore, and the simulated service " +
			"has none: send the webhook to the URL in .local/up.json with a certificate of yours")
	}
	text, err := os.ReadFile(o.local.ClientCert)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return fmt.Errorf("%s holds no certificate", o.local.ClientCert)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fmt.Errorf("%s: %w", o.local.ClientCert, err)
	}
	context, _ := request["requestContext"].(map[string]any)
	if context == nil {
		context = map[string]any{}
	}
	domain := o.local.Settings[settings.DomainName.Key]
	context["domainName"], context["apiId"] = domain, o.local.APIID
	context["domainPrefix"], _, _ = strings.Cut(domain, ".")
	context["authentication"] = map[string]any{"clientCert": apigateway.Describe(certificate)}
	request["requestContext"] = context
	return nil
}
