// Package keyservice has the HTTP client of the key service in a deployment.
package keyservice

import (
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"

	"payhook.example/shared/aws/client"
	"payhook.example/shared/aws/tokenstore"
	"payhook.example/shared/settings"
	"payhook.example/shared/token"
)

// NewClient returns the client that calls the key service, with the access token if that needs it. Without the token
// and CAs of the service, it uses connections.
func NewClient(cfg aws.Config, connections *client.Connections, s settings.Function) *http.Client {
	if s.KeysAuth == settings.BearerToken {
		return WithToken(tokenstore.Source(cfg, s.TokenParameter, s.TokenSecret), s)
	}
	return &http.Client{Transport: trusting(s, connections)}
}

// trusting returns connections that trust the CAs of the service, or others if it has none of its own.
func trusting(s settings.Function, others http.RoundTripper) http.RoundTripper {
	if s.ServiceCAs == nil {
		return others
	}
	return client.NewConnections(1).Trust(s.ServiceCAs)
}

// WithToken returns a client that sends the access token to the key service.
func WithToken(source token.Source, s settings.Function) *http.Client {
	return &http.Client{Transport: token.NewTransport(token.NewReader(source), s.KeyService, trusting(s, nil))}
}
