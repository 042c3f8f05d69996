package stores_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"payhook.example/shared/aws/stores"
	"payhook.example/shared/bus"
	"payhook.example/shared/settings"
)

// A store that is another one would mix what has other readers and another retention.
func TestEachStoreIsTheResourceOfItsSetting(t *testing.T) {
	var request string
	aws := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		request = r.URL.Path + " " + string(body)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer aws.Close()
	clients, err := stores.NewClients(func(name string) string {
		return map[string]string{"AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL": aws.URL,
			"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	var conf settings.Config
	conf.LedgerTable, conf.KeysTable, conf.EventBusName = "a-ledger", "a-keys", "a-bus"
	conf.LargeEventBucket, conf.ParkingBucket = "a-large-events", "a-parking"
	if s := clients.Stores(conf); s.Evidence != nil {
		t.Error("there is evidence without a bucket")
	}
	conf.EvidenceBucket = "a-evidence"
	s, ctx := clients.Stores(conf), t.Context()
	for name, do := range map[string]func() error{
		"a-ledger":       func() error { _, err := s.Ledger.Get(ctx, []string{"id"}, true); return err },
		"a-keys":         func() error { _, err := s.Keys.Get(ctx, "id"); return err },
		"a-bus":          func() error { _, err := s.Bus.Put(ctx, make([]bus.Entry, 1)); return err },
		"a-large-events": func() error { return s.LargeEvents.Put(ctx, "key", nil) },
		"a-parking": func() error {
			_, put := s.Parking.Create(ctx, "key", nil)
			_, get := s.Parking.Get(ctx, "key", 1)
			return errors.Join(put, get)
		},
		"a-evidence": func() error { _, err := s.Evidence.Create(ctx, "key", nil); return err },
	} {
		request = ""
		if err := do(); err == nil || !strings.Contains(request, name) {
			t.Errorf("%s: %v, requested %q", name, err, request)
		}
	}
}

func TestAFunctionWithoutARegionHasNoClients(t *testing.T) {
	if _, err := stores.NewClients(func(string) string { return "" }); err == nil ||
		!strings.Contains(err.Error(), "AWS_REGION") {
		t.Errorf("got %v", err)
	}
}
