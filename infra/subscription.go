package main

import (
	"fmt"

	"github.com/aws/aws-cdk-go/awscdk/v2"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
)

// mechanisms are the authentication mechanisms as the operator's team names them
// (the interface, section 5.2).
var mechanisms = map[string]string{
	settings.BySignature: "signature verification",
	settings.ByMTLS:      "mTLS",
	settings.ByBoth:      "both mTLS and signature verification",
}

// exchange is what both sides need of the certificates, which they exchange out of
// band (the interface, section 5.3).
const exchange = `
Needed from you for mTLS:
- the certificate of the CA that issues your client certificate, with every intermediate CA up to the root, in PEM (or the
  client certificate itself, if it is self-signed): at most 4 certificates in a chain, signed with SHA-256 or stronger, with RSA
  keys of 2048 bits or more or ECDSA keys of 256 bits or more
- the client certificate, for client authentication, and the SHA-256 fingerprint of its public key, confirmed over another channel
- a contact for rotation, and a notice of 30 days before a new client certificate or CA is used
`

// newSubscriptionSheet makes the output that lists what the service's operator
// asks for at subscription (the interface, section 5.2), and what is needed from
// the operator.
func newSubscriptionSheet(stack awscdk.Stack, conf settings.Deployment, url *string) {
	// AWS Certificate Manager's public certificates, and those of function URLs, are
	// issued by Amazon Trust Services (AWS, "AWS Certificate Manager public
	// certificate characteristics and limitations").
	server := "issued by Amazon Trust Services, whose root certificates are at https://www.amazontrust.com/repository/"
	if arn := conf.Endpoint.CertificateARN; arn != "" {
		server = "that of " + arn + " in AWS Certificate Manager; its CA's certificate is enclosed if the CA is not a public one"
	}
	sheet := fmt.Sprintf(`
URL that receives all webhooks: %s
Authentication mechanism: %s
Our server certificate: %s
TLS: 1.2 or newer
Event grouping: any; deliveries of one event and of many are taken, up to %d bytes each
Events: all; PAYMENT_STATUS.RELEASED at least
Method: %s
Answer to a webhook that was taken: %d
`, *url, mechanisms[conf.Webhook.Authentication], server, min(conf.Webhook.MaxPayloadBytes, settings.SafePayloadBytes),
		conf.Webhook.HTTPMethod, conf.Webhook.SuccessStatus)
	if conf.Webhook.UsesMTLS() {
		sheet += exchange
	}
	output(stack, names.SubscriptionSheetOutput, "for the operator's implementation team", &sheet)
}
