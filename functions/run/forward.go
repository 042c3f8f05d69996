package main

import (
	"bytes"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"time"
	"uuid"

	"payhook.example/shared/bus"
)

// forwards posts events to a program on this machine, once each.
var forwards = &http.Client{Timeout: 10 * time.Second,
	// A redirect could lead to another machine.
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// checkForward returns an error if a URL is not one of this machine: events can be those of a real service.
func checkForward(to string) error {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("must be a URL such as http://127.0.0.1:8080/events")
	}
	address, err := netip.ParseAddr(u.Hostname())
	if u.Hostname() != "localhost" && (err != nil || !address.IsLoopback()) {
		return errors.New("must be a URL of this machine, such as http://127.0.0.1:8080/events")
	}
	return nil
}

// forward posts an event in the envelope in which EventBridge hands it to a target, and returns what was answered.
func forward(to string, e bus.Entry) string {
	// AWS, "Event structure" in the EventBridge user guide.
	envelope, err := json.Marshal(map[string]any{"version": "0", "id": uuid.New().String(), "detail-type": e.DetailType,
		"source": e.Source, "account": "000000000000", "time": time.Now().UTC().Format(time.RFC3339),
		"region": "us-east-1", "resources": []string{e.DeliveryID}, "detail": jsontext.Value(e.Detail)})
	if err != nil {
		return err.Error()
	}
	answer, err := forwards.Post(to, "application/json", bytes.NewReader(envelope))
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20)) // so that the connection is used again
	return answer.Status
}
