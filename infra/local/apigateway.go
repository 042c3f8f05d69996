package local

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// maxPayload is a quota in bytes (AWS, "Quotas for configuring and running an HTTP API in API Gateway").
const maxPayload = 10 << 20

// httpAPI is an HTTP API on its custom domain, as the construct deploys it: with a route for the path / and each
// method of webhooks.
type httpAPI struct {
	Domain   string
	ID       string
	Function string        // the function behind it, with its qualifier
	Timeout  time.Duration // 0: 30 s, the longest
	// Truststore holds CA certificates in PEM. Without them, clients need no certificate.
	Truststore []byte
}

// invoker invokes functions. A [lambda.Client] does.
type invoker interface {
	Invoke(context.Context, *lambda.InvokeInput, ...func(*lambda.Options)) (*lambda.InvokeOutput, error)
}

// apiGateway replaces Amazon API Gateway on this machine: it serves an HTTP API on a custom domain, with or without
// mutual TLS, in front of a Lambda function. The emulator stores HTTP APIs, domains and truststores, but does not serve
// TLS. It is safe for concurrent use, and listens on 127.0.0.1 only.
//
// A request reaches the function only if API Gateway would pass it on, as far as AWS documents that. The event has the
// payload format 2.0 (AWS, "Create AWS Lambda proxy integrations for HTTP APIs in API Gateway"). Comments say what AWS
// does not document.
//
// With a truststore, a client certificate is verified as AWS describes in "How to turn on mutual TLS authentication for
// your HTTP APIs in API Gateway": validity, chain to the CAs of the truststore, strength of keys and signatures.
// Revocation and the extended key usage are not checked.
type apiGateway struct {
	// URL is https on 127.0.0.1.
	URL string

	api       httpAPI
	verifier  *clientcert.Verifier // of the truststore; nil without one
	log       *slog.Logger
	functions invoker
	server    *http.Server
}

// startAPIGateway starts an apiGateway with a server certificate on a free port. The log gets a line
// for each request. The caller must Close it.
func startAPIGateway(api httpAPI, functions invoker, certificate tls.Certificate,
	logTo io.Writer) (*apiGateway, error) {
	api.Timeout = cmp.Or(api.Timeout, 30*time.Second)
	e := &apiGateway{api: api, functions: functions, log: slog.New(slog.NewTextHandler(logTo, nil))}
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"}, SessionTicketsDisabled: true}
	if len(api.Truststore) > 0 {
		truststore, err := clientcert.ReadTruststore(api.Truststore)
		if err != nil {
			return nil, err
		}
		e.verifier = clientcert.NewVerifier(truststore, clientcert.Policy{})
		// It is verified later, because the answer to an untrusted certificate is an HTTP response.
		// AWS does not document how API Gateway answers a client without a certificate. Here the TLS
		// handshake fails, and the client gets no HTTP response.
		config.ClientAuth = tls.RequireAnyClientCert
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e.URL = "https://" + listener.Addr().String() + "/"
	e.server = &http.Server{Handler: e, ReadHeaderTimeout: 10 * time.Second, TLSConfig: config,
		ErrorLog: slog.NewLogLogger(e.log.Handler(), slog.LevelInfo)}
	go e.server.ServeTLS(listener, "", "")
	return e, nil
}

// Close stops it, and closes the connections that are still open.
func (e *apiGateway) Close() { e.server.Close() }

func (e *apiGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, reason := e.serve(w, r)
	if reason != nil { // API Gateway answers
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"message":%q}`, http.StatusText(status))
	}
	e.log.Info("request", "method", r.Method, "path", r.URL.Path, "status", status, "reason", reason)
}

// serve passes a request on and writes the answer of the function. If the reason is not nil, it
// has written nothing, and API Gateway answers with the status.
func (e *apiGateway) serve(w http.ResponseWriter, r *http.Request) (status int, reason error) {
	var certificate *x509.Certificate
	if e.verifier != nil {
		certificate = r.TLS.PeerCertificates[0]
		if err := e.verify(certificate); err != nil {
			return http.StatusForbidden, err
		}
	}
	// Clients of this machine can use its name, as the domain need not be resolved. API Gateway answers
	// 403 to another domain, too.
	if err := paymenttest.FromPage(r, e.api.Domain); err != nil {
		return http.StatusForbidden, err
	}
	if methods := slices.Concat(settings.Methods(), settings.MonitorMethods()); !slices.Contains(methods, r.Method) ||
		r.URL.Path != "/" {
		return http.StatusNotFound, errors.New("no route")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxPayload+1))
	if err != nil {
		return http.StatusBadRequest, err
	}
	if len(body) > maxPayload {
		return http.StatusRequestEntityTooLarge, errors.New("the payload is larger than the quota")
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	event, err := e.event(r, certificate)
	if err != nil {
		return http.StatusInternalServerError, err
	}
	return e.invoke(w, r, event)
}

// verify returns why API Gateway rejects a certificate. It does not check the extended key
// usage and the form of serial numbers; the function does.
func (e *apiGateway) verify(c *x509.Certificate) error {
	_, err := e.verifier.VerifyCertificate(c, time.Now())
	if rejected, ok := errors.AsType[*clientcert.Error](err); ok &&
		(rejected.Reason == clientcert.WrongUsage || rejected.Reason == clientcert.Malformed) {
		return nil
	}
	return err
}

// invoke invokes the function and writes its answer. AWS documents the answers to errors of
// Lambda for REST APIs only. Here they are 413 for an event that is too large for Lambda, 503 for
// a function that is throttled or late, and 500 otherwise.
func (e *apiGateway) invoke(w http.ResponseWriter, r *http.Request, event []byte) (int, error) {
	// The function goes on when the client is gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), e.api.Timeout)
	defer cancel()
	out, err := e.functions.Invoke(ctx, &lambda.InvokeInput{FunctionName: &e.api.Function, Payload: event})
	_, tooLarge := errors.AsType[*types.RequestTooLargeException](err)
	_, throttled := errors.AsType[*types.TooManyRequestsException](err)
	switch {
	case tooLarge:
		return http.StatusRequestEntityTooLarge, err
	case throttled || err != nil && ctx.Err() != nil:
		return http.StatusServiceUnavailable, err
	case err != nil:
		return http.StatusInternalServerError, err
	case out.FunctionError != nil:
		return http.StatusInternalServerError, fmt.Errorf("the function failed: %s", out.Payload)
	}
	// Payhook's function always states a status, and its bodies are text.
	var answer events.APIGatewayV2HTTPResponse
	if err := json.Unmarshal(out.Payload, &answer); err != nil || answer.StatusCode < 200 || answer.StatusCode > 599 ||
		answer.IsBase64Encoded {
		return http.StatusInternalServerError, fmt.Errorf("the function answered %s", out.Payload)
	}
	for name, value := range answer.Headers {
		w.Header().Set(name, value)
	}
	w.WriteHeader(answer.StatusCode)
	io.WriteString(w, answer.Body)
	return answer.StatusCode, nil
}

// event returns what the function reads of the event that the endpoint makes of a request with a client certificate,
// which is nil without mutual TLS.
func (e *apiGateway) event(r *http.Request, certificate *x509.Certificate) ([]byte, error) {
	sender, _, _ := net.SplitHostPort(r.RemoteAddr)
	made, err := paymenttest.LambdaEvent(r, sender)
	if err != nil {
		return nil, err
	}
	made.RequestContext.DomainName, made.RequestContext.APIID = e.api.Domain, e.api.ID
	if certificate != nil {
		made.RequestContext.Authentication.ClientCert.ClientCertPem = string(paymenttest.EncodeCertificate(certificate))
	}
	if !isText(r.Header.Get("Content-Type")) && !made.IsBase64Encoded && made.Body != "" {
		made.Body, made.IsBase64Encoded = base64.StdEncoding.EncodeToString([]byte(made.Body)), true
	}
	return json.Marshal(made)
}

// isText reports whether a body is passed on as text. AWS does not list the types;
// these are those that were found by trying (MiniStack's pull request 766, "v2
// Lambda-proxy honors isBase64Encoded in both directions"). No type is binary.
func isText(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (strings.HasPrefix(kind, "text/") ||
		slices.Contains([]string{"application/json", "application/xml", "application/javascript"}, kind))
}
