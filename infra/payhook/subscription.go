package payhook

import (
	"fmt"

	"payhook.example/shared/settings"
)

// mechanisms are the names of the authentication mechanisms in the interface (section 5.2).
var mechanisms = map[string]string{
	settings.BySignature: "signature verification",
	settings.ByMTLS:      "mTLS",
	settings.ByBoth:      "both mTLS and signature verification",
}

// exchange lists the certificates that both sides exchange out of band (the interface, section 5.3).
const exchange = `
Needed from you for mTLS:
- the certificate of the CA that issues your client certificate, with every intermediate CA up to the root, in PEM
  (or the client certificate itself, if it is self-signed): at most 4 certificates in a chain, signed with SHA-256 or
  stronger, with RSA keys of 2048 bits or more or ECDSA keys of 256 bits or more
- the client certificate, for client authentication, and the SHA-256 fingerprint of its public key, confirmed over
  another channel
- a contact for rotation, and a notice of 30 days before a new client certificate or CA is used
`

// subscriptionDetails returns the information that the service's operator needs for a subscription (the interface,
// section 5.2), and what is needed from the operator.
func (p *Payhook) subscriptionDetails() *string {
	conf := p.conf
	// Amazon Trust Services issues the public certificates of AWS Certificate Manager and those of function URLs (AWS,
	// "AWS Certificate Manager public certificate characteristics and limitations").
	server := "issued by Amazon Trust Services, whose root certificates are at https://www.amazontrust.com/repository/"
	if arn := conf.CertificateARN; arn != "" {
		server = "that of " + arn + " in AWS Certificate Manager; the CA's certificate is attached if the CA is not " +
			"public"
	}
	details := fmt.Sprintf(`
URL that receives all webhooks: %s
Authentication mechanism: %s
Our server certificate: %s
TLS: 1.2 or newer
Event grouping: any; deliveries of one or more events are accepted, up to %d bytes each
Events: all; at least PAYMENT_STATUS.RELEASED
Method: POST
Answer to an accepted webhook: %d
`, *p.webhook.url, mechanisms[conf.Authentication], server,
		settings.SafePayloadBytes, conf.SuccessStatus)
	if conf.UsesMTLS() {
		details += exchange
	}
	return &details
}
