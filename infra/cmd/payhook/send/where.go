package send

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// local returns what signs and sends in the local run: the simulated service,
// unless there is a key.
func (o *options) local() (send, *paymenttest.Remote, error) {
	run, err := deployment.Read(".")
	if err != nil {
		return nil, nil, cli.Unreachable(err)
	}
	elsewhere := o.url != ""
	if !elsewhere {
		o.url = run.WebhookURL
		o.why = whyLocal(run)
	}
	if o.sign.KeyGiven() {
		sender, err := o.sign.Sender(run.Settings)
		if err == nil && !elsewhere && run.ServerCA != "" {
			sender.Client, err = tlsClient(run)
		}
		return sender.Send, nil, err
	}
	if !run.Simulated {
		return nil, nil, cli.Usage("the local run uses the payment service at %s, not the simulated one, so a key is "+
			"needed to sign: --key FILE --key-id UUID", run.PaymentService)
	}
	if o.carriers, err = o.sign.Simulated(run.Settings); err != nil {
		return nil, nil, err
	}
	remote := paymenttest.Remote{URL: run.PaymentService}
	return remote.Send, &remote, nil
}

// whyLocal says how to see why a webhook to the local run was answered 401.
func whyLocal(run *deployment.Deployment) string {
	captured := cmp.Or(run.Settings[settings.CaptureRefused.Key], settings.CaptureRefused.Default)
	switch {
	case run.Settings[settings.Authentication.Key] == settings.ByMTLS:
		return "" // nothing is signed
	case captured == settings.Off:
		return "The local run stores no rejected webhook. To see why one is answered 401, send it after:\n  " +
			run.Restart(map[string]string{settings.CaptureRefused.Key: "1h"})
	}
	return "To see why it was answered 401:\n  make payhook ARGS=\"explain --last --local\""
}

// tlsClient returns a client for the endpoint of the local run.
func tlsClient(run *deployment.Deployment) (*http.Client, error) {
	text, err := os.ReadFile(run.ServerCA)
	if err != nil {
		return nil, err
	}
	servers := x509.NewCertPool()
	servers.AppendCertsFromPEM(text)
	var certificate tls.Certificate
	if run.ClientCert != "" {
		if certificate, err = tls.LoadX509KeyPair(run.ClientCert, run.ClientKey); err != nil {
			return nil, err
		}
	}
	return paymenttest.NewTLSClient(servers, certificate), nil
}

// deployed returns the URL of the stack for webhooks.
func (o *options) deployed(ctx context.Context) (string, error) {
	d, err := deployment.Connect(ctx, *o.target)
	if err != nil {
		return "", fmt.Errorf("%w\n--url sends to a URL without reading the stack", err)
	}
	o.why = "If it was answered 401 and the stack has the setting captureRefused, this says why:\n" +
		"  payhook explain --last"
	return d.Output(names.WebhookURLOutput)
}
