package send

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// connect returns the deployment that webhooks are sent to. With --url, it has that URL.
func (o *options) connect(ctx context.Context) (d *deployment.Deployment, err error) {
	switch {
	case o.target.Local:
		d, err = deployment.Read(".")
	case o.sign.file == "":
		return nil, cli.Usage("nothing to sign with: use --key FILE --key-id UUID, or --local for the simulated " +
			"payment service of the local run")
	case o.url != "":
		return &deployment.Deployment{WebhookURL: o.url}, nil
	default:
		if d, err = deployment.Connect(ctx, *o.target); err != nil {
			err = fmt.Errorf("%w\n--url sends to a URL without reading the stack", err)
		}
	}
	if err != nil {
		return nil, cli.Unreachable(err)
	}
	if o.url != "" {
		d.WebhookURL, d.ServerCA = o.url, ""
	} else {
		o.why = why(d)
	}
	return d, nil
}

// why says how to see why a webhook was answered 401. It returns "" if nothing says it.
func why(d *deployment.Deployment) string {
	switch {
	case !d.Local:
		return "If it was answered 401 and the stack has the setting captureRejected, this says why:\n" +
			"  payhook explain --last"
	case d.Setting(settings.Authentication) == settings.ByMTLS:
		return "" // nothing is signed
	case d.Setting(settings.CaptureRejected) == settings.Off:
		return "The local run stores no rejected webhook. To see why one is answered 401, send it after:\n  " +
			d.Restart(map[string]string{settings.CaptureRejected.Key: "1h"})
	}
	return "To see why it was answered 401:\n  make payhook ARGS=\"explain --last --local\""
}

// tlsClient returns a client for the endpoint of the local run.
func tlsClient(d *deployment.Deployment) (*http.Client, error) {
	text, err := os.ReadFile(d.ServerCA)
	if err != nil {
		return nil, err
	}
	servers := x509.NewCertPool()
	servers.AppendCertsFromPEM(text)
	var certificate tls.Certificate
	if d.ClientCert != "" {
		if certificate, err = tls.LoadX509KeyPair(d.ClientCert, d.ClientKey); err != nil {
			return nil, err
		}
	}
	return paymenttest.NewTLSClient(servers, certificate), nil
}
