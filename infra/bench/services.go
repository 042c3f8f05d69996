package main

import (
	"bytes"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"payhook.example/shared/awstest"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
)

// services are AWS and the payment service's keys on this machine: one HTTP server each. A request
// is answered a while after it was read. (A server that answers before it has read the request makes
// the client open a new connection.) Every key id has the same key.
type services struct {
	aws, keys *httptest.Server
	key       *rsa.PublicKey
	table     awstest.Handler // of keys

	bundle, folders string // with CA certificates; "" without TLS

	calls, connections atomic.Int64 // connections to AWS, whose services have one host here
}

const ledgerTable, keysTable = "ledger", "keys"

// startServices starts both servers.
func startServices(key *rsa.PublicKey, tls bool) *services {
	db := awstest.NewDynamoDB()
	db.CreateTable(keysTable, names.KeysKey)
	s := &services{key: key, table: awstest.Handler{DynamoDB: db}}
	s.aws = httptest.NewUnstartedServer(http.HandlerFunc(s.serveAWS))
	s.keys = httptest.NewUnstartedServer(http.HandlerFunc(s.serveKeys))
	s.aws.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.connections.Add(1)
		}
	}
	for _, server := range []*httptest.Server{s.aws, s.keys} {
		server.Config.ErrorLog = log.New(io.Discard, "", 0) // a process is ended while its connections are open
		if tls {
			server.StartTLS()
		} else {
			server.Start()
		}
	}
	return s
}

// writeBundle writes a bundle of CA certificates as large as that of Amazon Linux 2023 into a folder,
// and two folders that contain it, all of which Go reads (https://go.dev/issue/79018).
func (s *services) writeBundle(folder string) error {
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.aws.Certificate().Raw})
	s.bundle, s.folders = folder+"/pki/ca-bundle.crt", folder+"/pki:"+folder+"/ssl"
	return errors.Join(os.Mkdir(folder+"/pki", 0o700), os.WriteFile(s.bundle, bytes.Repeat(certificate, 143), 0o600),
		os.Mkdir(folder+"/ssl", 0o700), os.Symlink(s.bundle, folder+"/ssl/ca-bundle.crt"))
}

func (s *services) close() {
	for _, server := range []*httptest.Server{s.aws, s.keys} {
		server.CloseClientConnections()
		server.Close()
	}
}

func (s *services) serveKeys(w http.ResponseWriter, r *http.Request) {
	id, ok := strings.CutPrefix(r.URL.Path, "/v1/keys/")
	if !ok {
		return // it only opens a connection
	}
	s.calls.Add(1)
	time.Sleep(delay)
	w.Header().Set("Content-Type", "application/json")
	w.Write(keys.FormatJWK(id, s.key))
}

func (s *services) serveAWS(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	target := r.Header.Get(awstest.TargetHeader)
	if err != nil || target == "" && r.Method != http.MethodPut {
		return // the process was ended, or it only opens a connection
	}
	s.calls.Add(1)
	time.Sleep(delay)
	list := func(before, element, counted string) string {
		return before + strings.TrimSuffix(strings.Repeat(element+",", bytes.Count(body, []byte(counted))), ",") + `]}`
	}
	// Only the table of keys is stored: the services must not use the CPU that the functions need.
	switch {
	case bytes.Contains(body, fmt.Appendf(nil, `"TableName":%q`, keysTable)):
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.table.ServeHTTP(w, r)
	case target == awstest.EventBridgeTarget+"PutEvents":
		io.WriteString(w, list(`{"FailedEntryCount":0,"Entries":[`,
			`{"EventId":"11710aed-b79e-4468-a20b-bb3c0c3b4860"}`, `"DetailType":`))
	case target == awstest.DynamoDBTarget+"BatchExecuteStatement":
		io.WriteString(w, list(`{"Responses":[`, fmt.Sprintf(`{"TableName":%q}`, ledgerTable), `"Statement":`))
	case target != "": // of DynamoDB; the answer of S3 is empty
		io.WriteString(w, "{}")
	}
}
