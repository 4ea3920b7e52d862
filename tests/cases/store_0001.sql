-- A database of schema 0001, frozen: later gpujobs must open it. Made by iterdump.
BEGIN TRANSACTION;
CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE attempts (
	job_id VARCHAR(16) NOT NULL, 
	number INTEGER NOT NULL, 
	label VARCHAR(96) NOT NULL, 
	provider VARCHAR(32) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	opened_at FLOAT NOT NULL, 
	closed_at FLOAT, 
	suspect_until FLOAT, 
	snapshot TEXT NOT NULL, 
	PRIMARY KEY (job_id, number), 
	UNIQUE (label)
);
INSERT INTO "attempts" VALUES('abc123',1,'gpujob-ad2a0ab6-abc123-1-fedcba','fake','CLOSED',1800000000.0,1800000073.0,NULL,'{"job_id":"abc123","number":1,"label":"gpujob-ad2a0ab6-abc123-1-fedcba","provider":"fake","offer":{"provider":"fake","key":"a100","gpu":"A100-80GB","gpu_count":1,"vram_gib":80.0,"price_usd_per_hour":"1.80"},"disk_gib":0,"billing_step_s":1.0,"list_lag_s":10.0,"opened_at":1800000000.0,"deadline_at":1800003600.0,"state":"CLOSED","reason":"CANCELLED","launch_first_at":1800000000.0,"launch_asked_at":1800000000.0,"machines":[{"id":"m-1","first_seen_at":1800000000.0,"terminate_first_at":1800000060.0,"terminate_last_at":1800000060.0,"terminate_calls":1,"absent_at":1800000062.0,"absence_reads":2,"gone_at":1800000073.0}],"main_id":"m-1","launched_at":1800000000.0,"ssh_ready_at":1800000005.0,"start_asked_at":1800000009.0,"trainer_started_at":1800000009.0,"stopping_at":1800000060.0,"closed_at":1800000073.0,"proof":"reads"}');
CREATE TABLE events (
	seq INTEGER NOT NULL, 
	job_id VARCHAR(16) NOT NULL, 
	attempt INTEGER NOT NULL, 
	at FLOAT NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	data TEXT NOT NULL, 
	fence INTEGER NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "events" VALUES(1,'abc123',0,1800000000.0,'JobSubmitted','{"at":1800000000.0,"name":"tone"}',0);
INSERT INTO "events" VALUES(2,'abc123',1,1800000000.0,'Opened','{"at":1800000000.0,"job_id":"abc123","number":1,"label":"gpujob-ad2a0ab6-abc123-1-fedcba","provider":"fake","offer":{"provider":"fake","key":"a100","gpu":"A100-80GB","gpu_count":1,"vram_gib":80.0,"price_usd_per_hour":"1.80"},"disk_gib":0,"billing_step_s":1.0,"list_lag_s":10.0,"deadline_at":1800003600.0}',1);
INSERT INTO "events" VALUES(3,'abc123',1,1800000000.0,'LaunchAsked','{"at":1800000000.0}',1);
INSERT INTO "events" VALUES(4,'abc123',1,1800000000.0,'MachineSeen','{"at":1800000000.0,"instance_id":"m-1","how":"answered"}',1);
INSERT INTO "events" VALUES(5,'abc123',1,1800000000.0,'Launched','{"at":1800000000.0,"instance_id":"m-1"}',1);
INSERT INTO "events" VALUES(6,'abc123',1,1800000005.0,'SshReady','{"at":1800000005.0}',1);
INSERT INTO "events" VALUES(7,'abc123',1,1800000009.0,'StartAsked','{"at":1800000009.0}',1);
INSERT INTO "events" VALUES(8,'abc123',1,1800000009.0,'TrainerStarted','{"at":1800000009.0}',1);
INSERT INTO "events" VALUES(9,'abc123',1,1800000060.0,'Aborted','{"at":1800000060.0,"reason":"CANCELLED","evidence":""}',1);
INSERT INTO "events" VALUES(10,'abc123',1,1800000060.0,'TerminateAsked','{"at":1800000060.0,"instance_id":"m-1"}',1);
INSERT INTO "events" VALUES(11,'abc123',1,1800000060.0,'TerminateAccepted','{"at":1800000060.0,"instance_id":"m-1"}',1);
INSERT INTO "events" VALUES(12,'abc123',1,1800000062.0,'AbsenceRead','{"at":1800000062.0,"instance_id":"m-1"}',1);
INSERT INTO "events" VALUES(13,'abc123',1,1800000073.0,'MachineGone','{"at":1800000073.0,"instance_id":"m-1"}',1);
INSERT INTO "events" VALUES(14,'abc123',1,1800000073.0,'InstanceGone','{"at":1800000073.0,"proof":"reads"}',1);
INSERT INTO "events" VALUES(15,'abc123',0,1800000073.0,'JobClosed','{"at":1800000073.0,"reason":"CANCELLED"}',1);
CREATE TABLE jobs (
	id VARCHAR(16) NOT NULL, 
	name TEXT NOT NULL, 
	created_at FLOAT NOT NULL, 
	"plan" TEXT NOT NULL, 
	active BOOLEAN NOT NULL, 
	cancel_asked_at FLOAT, 
	cancel_reason VARCHAR(32), 
	closed_at FLOAT, 
	reason VARCHAR(32), 
	evidence TEXT, 
	removed_at FLOAT, 
	lease_holder TEXT, 
	lease_until FLOAT DEFAULT 0 NOT NULL, 
	fence INTEGER DEFAULT 0 NOT NULL, 
	adopted BOOLEAN DEFAULT 0 NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "jobs" VALUES('abc123','tone',1800000000.0,'{"id":"abc123","name":"tone","spec":{"name":"tone"},"offers":[{"provider":"fake","key":"a100","gpu":"A100-80GB","gpu_count":1,"vram_gib":80.0,"price_usd_per_hour":"1.80"}],"launch":{"public_key":"ssh-ed25519 AAAA test","disk_gib":20,"env":{}},"caps":{"budget_usd":"3.50"},"output_folder":"/nonexistent/out","expected_usd":"2.5"}',0,NULL,NULL,1800000073.0,'CANCELLED','',NULL,NULL,0.0,1,0);
CREATE TABLE offsets (
	job_id VARCHAR(16) NOT NULL, 
	attempt INTEGER NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	bytes BIGINT NOT NULL, 
	PRIMARY KEY (job_id, attempt, name)
);
INSERT INTO "offsets" VALUES('abc123',1,'train.log',123);
CREATE TABLE progress (
	job_id VARCHAR(16) NOT NULL, 
	attempt INTEGER NOT NULL, 
	data TEXT NOT NULL, 
	PRIMARY KEY (job_id, attempt)
);
INSERT INTO "progress" VALUES('abc123',1,'{"at":1800000050.0,"step":4,"max_steps":9,"loss":1.25}');
CREATE TABLE strays (
	provider VARCHAR(32) NOT NULL, 
	instance_id VARCHAR(128) NOT NULL, 
	label TEXT NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	first_seen_at FLOAT NOT NULL, 
	price_usd_per_hour TEXT, 
	deadline_at FLOAT, 
	PRIMARY KEY (provider, instance_id)
);
INSERT INTO "strays" VALUES('fake','m-9','gpujob-x','orphan',1800000000.0,'1.80',1800000060.0);
CREATE INDEX jobs_active ON jobs (active);
CREATE INDEX attempts_state ON attempts (state);
CREATE INDEX events_job ON events (job_id, seq);
COMMIT;
