package webhookhandler

import (
	"crypto/x509"
	"strings"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/settings"
)

// The errors of events that do not come from the API. They contain no value of the event.
var (
	errFormat = wrongOrigin("the event does not have payload format 2.0")
	errDomain = wrongOrigin("the event does not come from the API's domain")
	errAPI    = wrongOrigin("the event does not come from this API")
)

func wrongOrigin(problem string) error {
	return &clientcert.Error{Reason: clientcert.WrongOrigin, Detail: problem}
}

// checkOrigin returns an error if an event does not come from the HTTP API that client certificates are accepted from:
// in the request context and never in a header, which any client can set. Only that API has verified, in the TLS
// handshake, that the client holds the certificate's private key. The permissions of the function decide who else can
// invoke it: the function cannot distinguish an imitated event from one of the API. A host name has no case (RFC 9110,
// section 4.2.3).
func checkOrigin(r request, api *settings.MTLS) error {
	switch {
	case r.Version != "2.0":
		return errFormat
	case !strings.EqualFold(r.RequestContext.DomainName, api.DomainName):
		return errDomain
	case r.RequestContext.APIID != api.APIID:
		return errAPI
	}
	return nil
}

// certificate names a client certificate in the log.
type certificate struct {
	Subject      string `json:"subject"`
	Issuer       string `json:"issuer"`
	SerialNumber string `json:"serialNumber"`
	Fingerprint  string `json:"fingerprint"`
	Pin          string `json:"pin"`
}

func newCertificate(chain []*x509.Certificate) *certificate {
	if len(chain) == 0 {
		return nil
	}
	c := chain[0]
	return &certificate{Subject: clientcert.Subject(c), Issuer: clientcert.Issuer(c),
		SerialNumber: c.SerialNumber.Text(16), Fingerprint: clientcert.Fingerprint(c), Pin: clientcert.PinOf(c)}
}
