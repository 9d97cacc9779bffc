package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func (s *settings) security() []check {
	user := s.given["user"]
	of := map[string]func(string) sasl.Mechanism{
		"SASL PLAIN": func(password string) sasl.Mechanism {
			return plain.Auth{User: user, Pass: password}.AsMechanism()
		},
		"SASL SCRAM-SHA-256": func(password string) sasl.Mechanism {
			return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
		},
		"SASL SCRAM-SHA-512": func(password string) sasl.Mechanism {
			return scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
		},
	}
	checks := []check{
		{"TLS", func() error { return s.secured("tls", false) }},
		{"mutual TLS", func() error { return s.secured("mtls", true) }},
	}
	for feature, mechanism := range of {
		checks = append(checks, check{feature, func() error { return s.login(mechanism) }})
	}
	return checks
}

func (s *settings) tls(isMutual bool) (kgo.Opt, error) {
	authority, err := os.ReadFile(s.given["authority"])
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(authority)
	if isMutual {
		identity, err := tls.LoadX509KeyPair(s.given["identity"], s.given["identity"])
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{identity}
	}
	return kgo.DialTLSConfig(config), nil
}

func (s *settings) secured(listener string, isMutual bool, more ...kgo.Opt) error {
	topic, err1 := s.topic(1)
	encrypted, err2 := s.tls(isMutual)
	if err := first(err1, err2); err != nil {
		return err
	}
	options := append([]kgo.Opt{encrypted}, more...)
	err := s.within(listener, func(ctx context.Context, client *kgo.Client) error {
		return send(ctx, client, topic, 1, 10)
	}, options...)
	return first(err, s.wantNumbers(listener, topic, 10, options...))
}

func (s *settings) login(mechanism func(string) sasl.Mechanism) error {
	if err := s.secured("sasl", false, kgo.SASL(mechanism(s.given["password"]))); err != nil {
		return err
	}
	encrypted, err := s.tls(false)
	if err != nil {
		return err
	}
	err = s.within("sasl", func(ctx context.Context, client *kgo.Client) error {
		return client.Ping(ctx)
	}, encrypted, kgo.SASL(mechanism("wrong")))
	if err == nil {
		return errors.New("a wrong password is taken")
	}
	return refused(kerr.SaslAuthenticationFailed, err)
}
