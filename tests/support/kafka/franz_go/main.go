// Runs one operation of a franz-go client over SASL_SSL, and prints what came of it as JSON.
//
// Arguments: BOOTSTRAP CA_FILE MECHANISM USER PASSWORD OPERATION [TOPIC [VALUE or GROUP]].
// Operations: topics, write, read.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// The time limit of an operation on a busy machine.
const deadline = 180 * time.Second

type outcome struct {
	Topics []string `json:"topics,omitempty"`
	Value  string   `json:"value,omitempty"`
	Error  string   `json:"error,omitempty"`
}

func main() {
	if len(os.Args) < 7 {
		fmt.Fprintln(os.Stderr, "BOOTSTRAP CA_FILE MECHANISM USER PASSWORD OPERATION [TOPIC [VALUE or GROUP]]")
		os.Exit(2)
	}
	done, err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6:])
	if err != nil {
		var refused *kerr.Error
		if !errors.As(err, &refused) {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		done = outcome{Error: refused.Message}
	}
	if err := json.NewEncoder(os.Stdout).Encode(done); err != nil {
		panic(err)
	}
}

func run(bootstrap, caFile, name, user, password string, operation []string) (outcome, error) {
	encoded, err := os.ReadFile(caFile)
	if err != nil {
		return outcome{}, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(encoded) {
		return outcome{}, fmt.Errorf("no certificate in %s", caFile)
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.DialTLSConfig(&tls.Config{RootCAs: authorities}),
		kgo.SASL(mechanism(name, user, password)),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if operation[0] == "read" {
		options = append(options, kgo.ConsumeTopics(operation[1]), kgo.ConsumerGroup(operation[2]))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return outcome{}, err
	}
	defer client.Close()
	context, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	switch operation[0] {
	case "topics":
		return topics(context, client)
	case "write":
		record := &kgo.Record{Topic: operation[1], Value: []byte(operation[2])}
		return outcome{}, client.ProduceSync(context, record).FirstErr()
	case "read":
		return read(context, client)
	}
	return outcome{}, fmt.Errorf("unknown operation: %s", operation[0])
}

func mechanism(name, user, password string) sasl.Mechanism {
	switch name {
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	}
	return plain.Auth{User: user, Pass: password}.AsMechanism()
}

// topics returns the names of all topics that the user may see.
func topics(context context.Context, client *kgo.Client) (outcome, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = nil
	response, err := request.RequestWith(context, client)
	if err != nil {
		return outcome{}, err
	}
	names := []string{}
	for _, topic := range response.Topics {
		names = append(names, *topic.Topic)
	}
	return outcome{Topics: names}, nil
}

// read returns the first record, or the first error, that a member of a group receives.
func read(context context.Context, client *kgo.Client) (outcome, error) {
	for {
		fetches := client.PollFetches(context)
		if err := fetches.Err0(); err != nil {
			return outcome{}, err
		}
		if failed := fetches.Errors(); len(failed) > 0 {
			return outcome{}, failed[0].Err
		}
		if records := fetches.Records(); len(records) > 0 {
			return outcome{Value: string(records[0].Value)}, client.CommitRecords(context, records[0])
		}
	}
}
