// Package up is the file in which a local run says where its things are:
// .local/up.json, there from when everything is up until it goes down.
//
// It guarantees that a reader sees a whole file or none.
package up

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// Path is where the file is, below the top of the project.
const Path = ".local/up.json"

// File says where things are.
type File struct {
	WebhookURL string `json:"webhookUrl"` // clients of this machine can post to it
	// ServerCA, ClientCert and ClientKey are PEM files for the --cacert, --cert and
	// --key of curl. They are for an https WebhookURL; the last two, if it asks for
	// client certificates of the simulated service.
	ServerCA   string `json:"serverCa,omitempty"`
	ClientCert string `json:"clientCert,omitempty"`
	ClientKey  string `json:"clientKey,omitempty"`
	// APIID is the id of the HTTP API behind an https WebhookURL.
	APIID       string `json:"apiId,omitempty"`
	Endpoint    string `json:"endpoint"` // of the AWS APIs; AWS_ENDPOINT_URL
	Region      string `json:"region"`
	Stack       string `json:"stack"`
	Bus         string `json:"bus"`
	LedgerTable string `json:"ledgerTable"`
	KeysTable   string `json:"keysTable"`
	TokenSecret string `json:"tokenSecret"` // the id of the secret with the access token
	// CredentialsSecret is the id of the secret with the client id and secret.
	CredentialsSecret string            `json:"credentialsSecret"`
	ParkingBucket     string            `json:"parkingBucket"`
	Queues            map[string]string `json:"queues"`    // URL by the name of the rule
	Functions         map[string]string `json:"functions"` // name in Lambda by the name of the folder
	// PaymentService is its base URL, and Simulated says that it is the simulated
	// one, which signs and sends on request.
	PaymentService string `json:"paymentService"`
	Simulated      bool   `json:"simulated"`
	// Settings are those that differ from the defaults, by their keys.
	Settings map[string]string `json:"settings"`
	// Given are those of Settings that the user gave.
	Given map[string]string `json:"given,omitempty"`
}

// Restart returns the command that starts the local run again with the settings that the
// user gave, and with these.
func (f File) Restart(with map[string]string) string {
	all := map[string]string{}
	maps.Copy(all, f.Given)
	maps.Copy(all, with)
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		pairs = append(pairs, key+"="+all[key])
	}
	command := `make down && make up SETTINGS="` + strings.Join(pairs, " ") + `"`
	if !f.Simulated {
		command += ", with the other variables of before"
	}
	return command
}

// Write writes the file below top.
func (f File) Write(top string) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(top, Path)
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Read reads the file below top. The error says so if nothing is up.
func Read(top string) (File, error) {
	var f File
	text, err := os.ReadFile(filepath.Join(top, Path))
	if errors.Is(err, fs.ErrNotExist) {
		return f, errors.New("nothing is up here: start it with make up, or with make run in another terminal")
	}
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return f, fmt.Errorf("%s: %w", Path, err)
	}
	return f, nil
}

// AccessKey is the id and the secret of the access key that is the root of the
// emulator's account.
const AccessKey = "test"

// direct is for servers of this machine, whatever proxy is set.
var direct = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: time.Minute}

// AWSConfig returns the configuration with which the SDK uses the emulator. A
// request that got no answer is sent again twice, since the emulator closes idle
// connections, and without a pause, since it is on this machine.
func (f File) AWSConfig() aws.Config {
	return aws.Config{
		Region:       f.Region,
		Credentials:  credentials.NewStaticCredentialsProvider(AccessKey, AccessKey, ""),
		BaseEndpoint: aws.String(f.Endpoint),
		HTTPClient:   direct,
		Retryer: func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) {
				o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
			})
		},
	}
}

// Remove removes the file below top.
func Remove(top string) { os.Remove(filepath.Join(top, Path)) }
