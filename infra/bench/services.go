package main

import (
	"bytes"
	"context"
	"crypto/rsa"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"time"

	"payhook.example/shared/awstest"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
)

// services are AWS and the payment service's keys on this machine: one HTTP server each,
// with or without TLS. A request is answered a while after it was read. (A server that
// answers before it has read the request makes the client open a new connection.)
type services struct {
	aws, keys *httptest.Server
	delay     time.Duration
	bundle    string // file with the certificate of the servers; "" without TLS

	handler awstest.Handler
	key     *rsa.PublicKey

	mu          sync.Mutex
	down        bool           // the key service answers 503
	canned      bool           // the ledger accepts everything and stores nothing
	calls       map[string]int // by operation
	connections int            // to AWS, whose services have one host here
}

// The names of what the functions use.
const (
	ledgerTable, keysTable     = "ledger", "keys"
	claimBucket, parkingBucket = "claims", "parking"
)

// unknownKeys is the prefix of the ids that the key service does not know.
const unknownKeys = "00000000"

// startServices starts both servers. The key service answers every key id with this key.
// With TLS, the certificate is written into folder.
func startServices(delay time.Duration, tls bool, key *rsa.PublicKey, folder string) (*services, error) {
	s := &services{delay: delay, key: key, calls: map[string]int{}}
	s.reset()
	start := func(handler http.HandlerFunc, changed func(net.Conn, http.ConnState)) *httptest.Server {
		server := httptest.NewUnstartedServer(handler)
		server.Config.ConnState = changed
		// A process is ended while its connections are open.
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		if tls {
			server.StartTLS()
		} else {
			server.Start()
		}
		return server
	}
	s.aws, s.keys = start(s.serveAWS, func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.mu.Lock()
			s.connections++
			s.mu.Unlock()
		}
	}), start(s.serveKeys, nil)
	if !tls {
		return s, nil
	}
	s.bundle = folder + "/ca.pem"
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.aws.Certificate().Raw})
	return s, os.WriteFile(s.bundle, text, 0o600)
}

// reset empties all tables.
func (s *services) reset() {
	db := awstest.NewDynamoDB()
	db.CreateLedger(ledgerTable)
	db.CreateTable(keysTable, names.KeysKey)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handler = awstest.Handler{DynamoDB: db, EventBridge: &awstest.EventBridge{}}
}

func (s *services) close() {
	s.aws.CloseClientConnections()
	s.keys.CloseClientConnections()
	s.aws.Close()
	s.keys.Close()
}

// usage is what a process has made the services do.
type usage struct{ calls, connections int }

func (s *services) usage() usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := usage{connections: s.connections}
	for _, n := range s.calls {
		u.calls += n
	}
	return u
}

func (u usage) minus(v usage) usage { return usage{u.calls - v.calls, u.connections - v.connections} }

// set determines how the services answer from now on.
func (s *services) set(canned, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.canned, s.down = canned, down
}

func (s *services) count(operation string) (handler awstest.Handler, canned, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[operation]++
	return s.handler, s.canned, s.down
}

func (s *services) serveKeys(w http.ResponseWriter, r *http.Request) {
	id, ok := strings.CutPrefix(r.URL.Path, "/v1/keys/")
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _, down := s.count("GET /v1/keys")
	time.Sleep(s.delay)
	switch {
	case down:
		w.WriteHeader(http.StatusServiceUnavailable)
	case strings.HasPrefix(id, unknownKeys):
		http.NotFound(w, r)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.Write(keys.FormatJWK(id, s.key))
	}
}

func (s *services) serveAWS(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the process was ended
	}
	target := r.Header.Get(awstest.TargetHeader)
	switch {
	case target == "" && r.Method == http.MethodPut: // S3
		s.count("PutObject")
		time.Sleep(s.delay)
		return
	case target == "": // no call: a connection is opened
		return
	}
	handler, canned, _ := s.count(target[strings.LastIndexByte(target, '.')+1:])
	// The answer is computed in the time of the delay.
	ready := time.Now().Add(s.delay)
	answer := httptest.NewRecorder()
	r.Body = io.NopCloser(bytes.NewReader(body))
	if text := cannedAnswer(target, body); canned && text != "" {
		answer.WriteString(text)
	} else {
		handler.ServeHTTP(answer, r.WithContext(context.WithoutCancel(r.Context())))
	}
	time.Sleep(time.Until(ready))
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	w.Write(answer.Body.Bytes())
}

// cannedAnswer returns the answer of a call that succeeds; "" for a call of the table of
// keys. The services must not use the CPU that the functions need.
func cannedAnswer(target string, body []byte) string {
	list := func(before, element string, n int, after string) string {
		return before + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + after
	}
	switch operation, _ := strings.CutPrefix(target, awstest.DynamoDBTarget); {
	case target == awstest.EventBridgeTarget+"PutEvents":
		return list(`{"FailedEntryCount":0,"Entries":[`, `{"EventId":"11710aed-b79e-4468-a20b-bb3c0c3b4860"}`,
			bytes.Count(body, []byte(`"DetailType":`)), `]}`)
	case bytes.Contains(body, fmt.Appendf(nil, `"TableName":%q`, keysTable)):
		return ""
	case operation == "PutItem", operation == "UpdateItem":
		return "{}"
	case operation == "BatchExecuteStatement":
		return list(`{"Responses":[`, fmt.Sprintf(`{"TableName":%q}`, ledgerTable),
			bytes.Count(body, []byte(`"Statement":`)), `]}`)
	}
	return ""
}
