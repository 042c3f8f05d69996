package keys

import (
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/clientcert"
)

// AcceptedCertificate describes the client certificate that was accepted last, as
// stored in the table.
type AcceptedCertificate struct {
	Subject      string `json:"subject" dynamodbav:"subject"` // RFC 4514
	Issuer       string `json:"issuer" dynamodbav:"issuer"`
	SerialNumber string `json:"serialNumber" dynamodbav:"serialNumber"` // hexadecimal
	Fingerprint  string `json:"fingerprint" dynamodbav:"fingerprint"`   // SHA-256, hexadecimal
	// Pin is the SHA-256 of its subject public key info, hexadecimal.
	Pin        string    `json:"pin" dynamodbav:"pin"`
	NotAfter   time.Time `json:"notAfter" dynamodbav:"notAfter,unixtime"`
	AcceptedAt time.Time `json:"acceptedAt" dynamodbav:"-"`
}

// certificateItem is the item of the client certificate that was accepted last. It does
// not expire, so it also shows a certificate that expired long ago.
type certificateItem struct {
	Name string `dynamodbav:"keyId"` // partition key: lastCertificateID
	AcceptedCertificate
	AcceptedAt milliseconds `dynamodbav:"acceptedAt"`
}

// CertificateReadAPI is the part of the DynamoDB client that [LastCertificate] uses.
type CertificateReadAPI interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
}

// lastCertificateID is the partition key of the item.
const lastCertificateID = "certificate#last"

// certificateEvery is the minimum time between two writes of a certificate by one instance.
const certificateEvery = 24 * time.Hour

// Certificates records in the table of keys which client certificate was accepted
// last. It is safe for concurrent use.
type Certificates struct {
	client API
	table  string

	mu      sync.Mutex
	written map[string]time.Time // by fingerprint
}

// NewCertificates returns a Certificates that writes to the table of that name.
func NewCertificates(client API, table string) *Certificates {
	return &Certificates{client: client, table: table, written: map[string]time.Time{}}
}

// Record stores that a certificate was accepted. It writes each certificate at most
// once a day, so AcceptedAt can be up to a day old if several certificates are in
// use. After an error, the next call writes again. A call takes at most half a second.
func (c *Certificates) Record(ctx context.Context, certificate *x509.Certificate, now time.Time) error {
	fingerprint := clientcert.Fingerprint(certificate)
	if !c.due(fingerprint, now) {
		return nil
	}
	item := marshal(certificateItem{lastCertificateID, AcceptedCertificate{
		Subject: clientcert.Subject(certificate), Issuer: clientcert.Issuer(certificate),
		SerialNumber: certificate.SerialNumber.Text(16), Fingerprint: fingerprint,
		Pin: clientcert.PinOf(certificate).String(), NotAfter: certificate.NotAfter,
	}, millisecondsOf(now)})
	ctx, cancel := context.WithTimeout(ctx, tableTimeout)
	defer cancel()
	_, err := c.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                 &c.table,
		Item:                      item,
		ConditionExpression:       aws.String("attribute_not_exists(acceptedAt) OR acceptedAt <= :at"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":at": number(now.UnixMilli())},
	})
	if _, failed := conditionFailed(err); err != nil && !failed {
		c.mu.Lock()
		delete(c.written, fingerprint)
		c.mu.Unlock()
		return fmt.Errorf("keys: table: record certificate: %w", err)
	}
	return nil
}

// due reports whether a certificate must be written now, and records that it was.
func (c *Certificates) due(fingerprint string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.written, func(_ string, at time.Time) bool { return now.Sub(at) >= certificateEvery })
	if _, written := c.written[fingerprint]; written {
		return false
	}
	c.written[fingerprint] = now
	return true
}

// LastCertificate returns the client certificate that was accepted last, or nil if
// none was accepted.
func LastCertificate(ctx context.Context, client CertificateReadAPI, table string) (*AcceptedCertificate, error) {
	out, err := client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &table, Key: itemKey(lastCertificateID)})
	if err != nil {
		return nil, fmt.Errorf("keys: table: last certificate: %w", err)
	}
	var i certificateItem
	if err := attributevalue.UnmarshalMap(out.Item, &i); err != nil {
		return nil, fmt.Errorf("keys: table: last certificate: %w", err)
	}
	if i.Fingerprint == "" {
		return nil, nil
	}
	last := i.AcceptedCertificate
	last.NotAfter, last.AcceptedAt = last.NotAfter.UTC(), i.AcceptedAt.time().UTC()
	return &last, nil
}

// TrustDaysLeft returns the number of days until a CA of the truststore or the
// certificate that was accepted last expires, whichever is first; 0 if one has
// expired. last can be nil.
func TrustDaysLeft(truststore *clientcert.Truststore, last *AcceptedCertificate, now time.Time) float64 {
	expires := truststore.Expires()
	if last != nil && last.NotAfter.Before(expires) {
		expires = last.NotAfter
	}
	return max(0, expires.Sub(now).Hours()/24)
}
