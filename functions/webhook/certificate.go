package main

import (
	"crypto/x509"
	"log/slog"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"payhook.example/shared/clientcert"
)

// origin is the HTTP API that client certificates are accepted from. Only that API
// has verified, in the TLS handshake, that the client holds the certificate's private
// key. Who else can invoke the function is decided by its permissions: an event that
// imitates the API's cannot be told from one of the API.
type origin struct {
	domainName string // in lower case
	apiID      string
}

// The ways in which an event does not come from the API. They wrap no value of it.
var (
	errFormat = wrongOrigin("the event does not have payload format 2.0")
	errDomain = wrongOrigin("the event does not come from the API's domain")
	errAPI    = wrongOrigin("the event does not come from this API")
)

func wrongOrigin(problem string) error {
	return &clientcert.Error{Reason: clientcert.WrongOrigin, Detail: problem}
}

// check returns an error if an event does not come from the API. A host name has no
// case (RFC 9110, section 4.2.3).
func (o origin) check(request events.APIGatewayV2HTTPRequest) error {
	switch {
	case request.Version != "2.0":
		return errFormat
	case !strings.EqualFold(request.RequestContext.DomainName, o.domainName):
		return errDomain
	case request.RequestContext.APIID != o.apiID:
		return errAPI
	}
	return nil
}

// presented returns the client certificate that API Gateway passes on, and never one
// of a header, which anybody can write.
func presented(request events.APIGatewayV2HTTPRequest) clientcert.Presented {
	c := request.RequestContext.Authentication.ClientCert
	return clientcert.Presented{
		PEM: c.ClientCertPem, SubjectDN: c.SubjectDN, IssuerDN: c.IssuerDN, SerialNumber: c.SerialNumber,
		NotBefore: c.Validity.NotBefore, NotAfter: c.Validity.NotAfter,
	}
}

// certificateAttr names a client certificate in the log.
func certificateAttr(c *x509.Certificate) slog.Attr {
	return slog.Group("certificate",
		slog.String("subject", clientcert.Subject(c)),
		slog.String("issuer", clientcert.Issuer(c)),
		slog.String("serialNumber", clientcert.SerialOf(c).Number),
		slog.String("fingerprint", clientcert.Fingerprint(c)),
	)
}
