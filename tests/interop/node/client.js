// What the cases share: the plan, the client and its three parts, each closed after use.
'use strict';

const fs = require('node:fs');
const { Kafka, logLevel } = require('kafkajs');

const WAIT_MS = 20_000;

const plan = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
const kafka = new Kafka({
  brokers: [plan.bootstrap],
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50 },
});

// Asks until the answer is the wanted one; Kafka tells its brokers of a change a little later.
async function settled(ask, wanted) {
  const deadline = Date.now() + WAIT_MS / 2;
  let answer = await ask();
  while (answer !== wanted && Date.now() < deadline) {
    answer = await ask();
  }
  return answer;
}

async function withAdmin(use) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await use(admin);
  } finally {
    await admin.disconnect();
  }
}

async function withProducer(settings, use) {
  const producer = kafka.producer(settings);
  await producer.connect();
  try {
    return await use(producer);
  } finally {
    await producer.disconnect();
  }
}

// Consumes a topic, or those that a pattern matches, until the handlers that `make` gives call `done`.
async function withConsumer(settings, topic, make) {
  const consumer = kafka.consumer({ maxWaitTimeInMs: 100, ...settings });
  await consumer.connect();
  let timer;
  try {
    await consumer.subscribe({ topic, fromBeginning: true });
    await new Promise((resolve, reject) => {
      timer = setTimeout(() => reject(new Error('the messages did not come')), WAIT_MS);
      consumer.run(make(consumer, resolve)).catch(reject);
    });
  } finally {
    clearTimeout(timer);
    await consumer.disconnect();
  }
}

module.exports = { WAIT_MS, kafka, plan, settled, withAdmin, withConsumer, withProducer };
