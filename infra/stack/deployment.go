// Package stack says where the parts of one Payhook are: of a stack in AWS, or of the local run.
//
// The local run writes its [Stack] to a file when everything is up, and removes the
// file when it ends. A reader gets a whole file or none.
package stack

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"

	"payhook.example/shared/aws/client"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/aws/tokenstore"
	"payhook.example/shared/settings"
	"payhook.example/shared/token"
)

// Path is the path of the file of the local run, below the top of the project.
const Path = ".local/up.json"

// Stack says where one Payhook is, and how its parts are named. Its place is chosen first, and [Connect] finds the
// rest. The zero value is the stack with the default name, in the account and region of the usual AWS variables. Its
// JSON is the file of the local run. Fields that are only for the local run are empty in AWS.
type Stack struct {
	// The place, as the flags of the program choose it.
	Local     bool   `json:"-"`      // the local run, and no AWS account
	StackName string `json:"stack"`  // "": that of the local run, or the default name
	ID        string `json:"-"`      // of the construct; "": the only one in the stack
	Region    string `json:"region"` // "": that of the AWS variables
	Profile   string `json:"-"`      // the same
	// Ask asks a person at the terminal; nil: nobody can be asked.
	Ask func(question string) (answer string, err error) `json:"-"`

	Name   string     `json:"-"` // for people: which stack, and where
	Status string     `json:"-"` // of the stack, such as UPDATE_COMPLETE
	AWS    aws.Config `json:"-"` // for its account and region; [EmulatorConfig] in the local run
	// FullName is unique in the account and Region: the output FullName, or Stack without one.
	// The names of alarms begin with it, and it is the dimension of metrics.
	FullName string `json:"-"`

	WebhookURL string `json:"webhookUrl"` // clients of this machine can post to it
	// ServerCA, ClientCert and ClientKey are PEM files for the --cacert, --cert and --key of curl. They are for an
	// https WebhookURL of the local run; the last two, if it asks for client certificates of the simulated service.
	ServerCA    string `json:"serverCa,omitempty"`
	ClientCert  string `json:"clientCert,omitempty"`
	ClientKey   string `json:"clientKey,omitempty"`
	Endpoint    string `json:"endpoint"` // of the AWS APIs; AWS_ENDPOINT_URL; "" for AWS
	Version     string `json:"-"`        // of Payhook, that wrote the template of the stack
	Bus         string `json:"bus"`
	LedgerTable string `json:"ledgerTable"`
	KeysTable   string `json:"keysTable"`
	// TokenSecret or TokenParameter is the id of the secret or the name of the parameter with the access token.
	// Both are "" if there is none; then there is no CredentialsSecret and no function token.
	TokenSecret    string `json:"tokenSecret,omitempty"`
	TokenParameter string `json:"tokenParameter,omitempty"`
	// CredentialsSecret is the id of the secret with the client id and secret.
	CredentialsSecret string            `json:"credentialsSecret,omitempty"`
	ParkingBucket     string            `json:"parkingBucket"`
	LargeEventBucket  string            `json:"largeEventBucket"`
	EvidenceBucket    string            `json:"evidenceBucket,omitempty"` // "" if no evidence is kept
	Queues            map[string]string `json:"queues"`                   // URL by the name of the consumer's rule
	Functions         map[string]string `json:"functions"`                // name in Lambda by the name of the folder
	Logs              map[string]string `json:"logs"`                     // log group by the function's folder
	// PaymentService is the base URL of the simulated one.
	PaymentService string `json:"paymentService"`
	// Settings are those that differ from the defaults, by their keys.
	Settings map[string]string `json:"settings"`
	// Given are those of Settings that the user gave.
	Given map[string]string `json:"given,omitempty"`
	// Outputs are those of the stack, by their names. WebhookUrl is WebhookURL.
	Outputs []Output `json:"-"`
}

// Output is an output of a stack.
type Output struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Meaning string `json:"meaning"`
}

// DefaultID is the id of the construct whose outputs have no id in their keys.
const DefaultID = "Default"

// SetOutputs fills in what the outputs of the stack name for the construct with an id. The id can be "" if the stack
// has one construct. Other outputs of the stack do not matter. Errors say what to do.
func (d *Stack) SetOutputs(outputs map[string]string, id string) error {
	ids := idsIn(outputs)
	if id == "" && len(ids) == 1 {
		id = ids[0]
	}
	switch {
	case len(ids) == 0:
		return fmt.Errorf("stack %s has no Payhook: name another stack with --stack", d.StackName)
	case id == "":
		return fmt.Errorf("stack %s has several Payhooks: choose one with --id: %s", d.StackName,
			strings.Join(ids, ", "))
	case !slices.Contains(ids, id):
		return fmt.Errorf("stack %s has no Payhook with the id %s: choose one with --id: %s", d.StackName, id,
			strings.Join(ids, ", "))
	}
	prefix := id
	if id == DefaultID {
		prefix = ""
	}
	var missing []string
	output := func(name string) string {
		if outputs[prefix+name] == "" {
			missing = append(missing, prefix+name)
		}
		return outputs[prefix+name]
	}
	d.FullName = cmp.Or(outputs[prefix+settings.FullNameOutput], d.StackName)
	d.WebhookURL, d.Bus = output(settings.WebhookURLOutput), output(settings.EventBusNameOutput)
	d.LedgerTable, d.KeysTable = output(settings.LedgerTableOutput), output(settings.KeysTableOutput)
	d.ParkingBucket, d.LargeEventBucket = output(settings.ParkingBucketOutput), output(settings.LargeEventBucketOutput)
	d.Version = cmp.Or(outputs[prefix+settings.VersionOutput], "unknown")
	d.EvidenceBucket = outputs[prefix+settings.EvidenceBucketOutput]
	d.Functions = map[string]string{"webhook": output(settings.WebhookFunctionOutput),
		"redrive": output(settings.RedriveFunctionOutput)}
	d.Logs = map[string]string{"webhook": output(settings.WebhookLogsOutput),
		"redrive": output(settings.RedriveLogsOutput)}
	// Without both, tokenStore is none.
	if outputs[prefix+settings.TokenFunctionOutput]+outputs[prefix+settings.CredentialsSecretOutput] != "" {
		d.CredentialsSecret = output(settings.CredentialsSecretOutput)
		d.Functions["token"], d.Logs["token"] = output(settings.TokenFunctionOutput), output(settings.TokenLogsOutput)
		if d.TokenParameter = outputs[prefix+settings.TokenParameterOutput]; d.TokenParameter == "" {
			d.TokenSecret = output(settings.TokenSecretOutput)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("stack %s has no output %s: it is older than this program; deploy it again", d.StackName,
			strings.Join(missing, ", "))
	}
	return nil
}

// idsIn returns the sorted ids of the constructs in a stack with these outputs. Other outputs
// can have the same endings, and an older Payhook lacks some.
func idsIn(outputs map[string]string) (ids []string) {
	for key := range outputs {
		id, ok := strings.CutSuffix(key, settings.WebhookURLOutput)
		if ok && outputs[id+settings.LedgerTableOutput]+outputs[id+settings.RedriveFunctionOutput] != "" {
			ids = append(ids, cmp.Or(id, DefaultID))
		}
	}
	slices.Sort(ids)
	return ids
}

// KeepsToken reports whether Payhook keeps an access token.
func (d *Stack) KeepsToken() bool { return d.TokenSecret+d.TokenParameter != "" }

// Token returns a reader of the access token that has read nothing yet.
func (d *Stack) Token() *token.Reader {
	return token.NewReader(tokenstore.Source(d.AWS, d.TokenParameter, d.TokenSecret))
}

// Setting returns the text of a setting in the local run, and its default for another stack.
func (d *Stack) Setting(key string) string { return settings.TextOf(d.Settings, key) }

// S3 returns a client.
func (d *Stack) S3() *s3.Client { return s3.NewClient(d.AWS) }

// copied matches settings that neither make nor a shell changes between double quotes.
var copied = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./; -]*$`)

// Restart returns the command that starts the local run again with the settings that the
// user gave, and with these, or what to do if they cannot be written in a command.
func (d *Stack) Restart(with map[string]string) string {
	all := map[string]string{}
	maps.Copy(all, d.Given)
	maps.Copy(all, with)
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		value := all[key]
		if !copied.MatchString(value) {
			return "write the settings into infra/settings.json; make down && make up"
		}
		if strings.Contains(value, " ") {
			value = "'" + value + "'"
		}
		pairs = append(pairs, key+"="+value)
	}
	return `make down && make up SETTINGS="` + strings.Join(pairs, " ") + `"`
}

// FunctionURL returns where a function URL is called. The emulator at an endpoint serves it there, because its host
// name does not resolve; "" is for AWS.
func FunctionURL(endpoint, functionURL string) string {
	if endpoint == "" {
		return functionURL
	}
	_, host, _ := strings.Cut(functionURL, "://")
	id, _, _ := strings.Cut(host, ".")
	return endpoint + "/_aws/lambda-url/" + id + "/"
}

// Write writes the file of the local run below top.
func (d *Stack) Write(top string) error {
	text, _ := json.MarshalIndent(d, "", "  ") // its types always have JSON
	path := filepath.Join(top, Path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Top returns the folder of the repository in which the current folder is: that of its go.mod. If the current folder
// is in none, such as that of another CDK app, it is the repository in which this program was built.
func Top() (string, error) {
	current, err := os.Getwd()
	if err != nil {
		return "", err
	}
	program, _ := os.Executable()
	for _, start := range []string{current, filepath.Dir(program)} {
		for folder := start; ; folder = filepath.Dir(folder) {
			text, _ := os.ReadFile(filepath.Join(folder, "go.mod"))
			if strings.HasPrefix(string(text), "module payhook.example\n") {
				return folder, nil
			}
			if folder == filepath.Dir(folder) {
				break
			}
		}
	}
	return "", fmt.Errorf("%s is in no clone of Payhook: change to the folder of one", current)
}

// ErrNotUp is returned if there is no local run.
var ErrNotUp = errors.New("nothing is up")

// Running returns the local run of the repository in which the current folder is. The error says
// what to do: it is [ErrNotUp] if there is none, and another one if it was killed.
func Running(ctx context.Context) (*Stack, error) {
	top, err := Top()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotUp, err)
	}
	d, err := Read(top)
	if err != nil {
		return nil, err
	}
	connection, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp",
		strings.TrimPrefix(d.Endpoint, "http://"))
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("the local run of %s has ended, and was not ended with make down: start it again with "+
			"make up", top)
	}
	if err != nil {
		return nil, fmt.Errorf("the local run does not answer: %w", err)
	}
	return d, connection.Close()
}

// Read reads the file of the local run below top. The error is [ErrNotUp] if there is none.
func Read(top string) (*Stack, error) {
	text, err := os.ReadFile(filepath.Join(top, Path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w in %s: start it with make up", ErrNotUp, top)
	}
	if err != nil {
		return nil, err
	}
	d := &Stack{Local: true}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("%s: %w", Path, err)
	}
	d.AWS = EmulatorConfig(d.Endpoint, d.Region)
	return d, nil
}

// Remove removes the file of the local run below top.
func Remove(top string) { os.Remove(filepath.Join(top, Path)) }

// AccessKey is the id and the secret of the access key that is the root of the emulator's account.
const AccessKey = "test"

// Direct is a client for servers of this machine that uses no proxy.
var Direct = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: time.Minute}

// emulated keeps connections to the emulator. The SDK's own client can close the connection of a fast
// answer before the answer is read, and then repeats the request, which took effect.
var emulated = &http.Client{Transport: client.NewConnections(64)}

// EmulatorConfig returns the configuration with which the SDK uses the emulator at an
// endpoint. A request that got no answer is sent again twice, since the emulator closes
// idle connections, and without a pause, since it is on this machine.
func EmulatorConfig(endpoint, region string) aws.Config {
	return aws.Config{
		Region:       region,
		Credentials:  credentials.NewStaticCredentialsProvider(AccessKey, AccessKey, ""),
		BaseEndpoint: &endpoint,
		HTTPClient:   emulated,
		APIOptions:   []func(*middleware.Stack) error{endSilence},
		Logger:       logging.Nop{},
		Retryer: func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) {
				o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
			})
		},
	}
}
