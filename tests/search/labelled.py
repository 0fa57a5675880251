"""A small labelled set: what people said, and for each question the messages that answer it.

The questions are of the kinds that people ask of their history: in other words than it was said, and by the exact name
of a thing. Many messages are near a question without answering it; as in real histories, there are many orders,
tickets, versions and errors that differ in a number only.
"""

from __future__ import annotations

MESSAGES = """\
My parcel still has not arrived, the courier says it was left with a neighbour.
I would like my money back for the broken headphones.
The kettle stopped heating after two days.
Please change the delivery address to my office.
Your driver threw the box over the fence and the vase inside is in pieces.
The discount code SPRING24 is rejected at checkout.
I was charged twice for the same subscription in March.
How do I cancel my yearly plan before it renews?
The invoice shows the wrong tax number for our company.
Can you send the receipt again, I deleted the mail.
We moved to a bigger flat, so the sofa has to come to the new place.
My son spilled juice on the keyboard and now half of the keys are dead.
The screen flickers whenever the laptop runs on battery.
After the update the app crashes with ERR_CONN_RESET when I log in.
The server log says ORA-00942 right before the nightly import fails.
I get a NullPointerException in OrderMapper.toDto since yesterday.
The build fails because libssl.so.1.1 cannot be found.
Our Jenkins job release-nightly-7 hangs at the signing step.
The function parse_user_id returns None for guests.
Set HANSARD_CRASHES to 300 before you run the long tests.
The certificate of api.example.org expires on Friday.
Could you book a table for four on Saturday evening?
My wife is vegetarian, so nothing with meat please.
The doctor said that I should avoid dairy for a month.
I am allergic to peanuts, even traces are dangerous.
We will land in Lisbon at noon and need a ride to the hotel.
The flight to Oslo was cancelled because of the storm.
I prefer a window seat, I get sick in the middle of the cabin.
Do I need a visa to travel to Vietnam for two weeks?
My passport runs out in June.
The hike took six hours and my knees still hurt.
I ran my first marathon in under four hours.
The physiotherapist showed me exercises for my lower back.
I have trouble falling asleep and wake up at three every night.
My blood pressure was too high at the last check-up.
The dentist had to pull out two of my teeth.
Our cat had five kittens in the wardrobe.
The puppy chews on every shoe it finds.
The vet gave the dog an injection against rabies.
The tomatoes on the balcony have brown spots on their leaves.
It has not rained for weeks and the lawn is yellow.
The roof leaks above the children's bedroom.
The heating in the cellar makes a knocking noise at night.
The neighbours play the drums until midnight.
My landlord wants to raise the rent by a fifth.
I signed the lease for the studio near the station.
The bank turned down our mortgage application.
I want to put a little aside every month for my pension.
The euro fell against the dollar again this morning.
My salary arrives on the 25th, so please book the rent after that.
My boss praised the presentation in front of the whole team.
I handed in my notice and start at the new firm in May.
Two colleagues were laid off last week.
I am nervous about the interview tomorrow.
She teaches mathematics at the school in our village.
My daughter failed her driving test for the second time.
The exam covers chapters three to nine of the chemistry book.
He wrote his thesis about medieval trade routes.
I am learning to play the cello, the bow is the hardest part.
The orchestra played Mahler, and I cried in the last movement.
We watched a film about a lighthouse keeper who loses his mind.
The novel has eight hundred pages, and nothing happens in it.
The recipe needs half a litre of cream and a pinch of nutmeg.
The cake sank in the middle because I opened the oven too early.
The soup was far too salty.
The battery of the car was flat this morning, so I came by train.
Somebody scratched my vehicle in the underground garage.
The brakes squeal when it is wet.
Winter tyres are compulsory from November.
Petrol has become so expensive that I cycle to work.
The bus was so full that I had to wait for the next one.
My phone was stolen on the tram.
I forgot the PIN of my new credit card.
Somebody logged in to my account from another country.
My password must be reset, I am locked out.
The wifi in the meeting room is slow.
Turn the lights in the living room down at ten.
Remind me to water the plants on Sunday.
Our anniversary is on the ninth of August.
Grandma turns ninety next week and we plan a surprise.
The wedding is in a barn by a lake.
The baby kicks all night long.
We named our son after my grandfather.
The divorce was final in spring.
My best friend moved to Canada, and I miss her.
I was very sad when our old dog died.
Nothing gives me joy at the moment, and I just stay in bed.
I was furious when they gave my seat to somebody else.
Thank you, that was exactly what I needed.
Good morning!
See you tomorrow.
Let us talk about something else.
Yes, please go ahead.
No, that is not what I meant.
Could you say that in simpler words?
What is the weather like today?
The election results come in at eight this evening.
The river burst its banks and flooded the old town.
An earthquake woke us at five in the morning.
The telescope showed us the rings of Saturn.
Bees find their way home by the position of the sun.
The glacier has lost a third of its ice since my childhood.
Wind turbines were built on the hill behind our house.
The museum is closed on Mondays.
A queue went twice around the block for the new phone.
The painter mixed her own colours from plants.
Chess is too slow for me, I like table tennis.
Our team lost the final on penalties.
The swimming pool opens again in May.
The printer jams with every second sheet.
Order 8841-B was sent to the wrong warehouse.
Order 8814-B arrived with a missing screw.
Ticket INC0012345 is still open.
Ticket INC0012354 was closed without an answer.
Please deploy version 2.14.3 to staging only.
Version 2.13.4 broke the export.
The meeting with Dr. Aleksandra Wojciechowska is on Tuesday.
Mr. Okonkwo asked for the figures of the third quarter.
Frau Müller-Lüdenscheidt possesses the only key to the archive.
Use the branch feature/retry-budget for the fix.
The pod payments-7f9c is in CrashLoopBackOff since the rollout.
Redis answers MOVED 3999 because the client does not speak cluster.
The webhook of Stripe is rejected with signature_verification_failed.
Our nightly backup of db-eu-3 did not finish, the volume was full.
get_window() cuts the tool result off when max_tokens is below 500.
The health check of /v2/status times out behind the load balancer.
TypeError: unhashable type: 'dict' comes from cache_key in session.py.
Rollback of migration 0042_add_region failed half way.
Please raise the quota of project atlas-prod to 64 vCPUs.
CVE-2026-1188 is fixed in the patch of last night.
The flag ENABLE_NEW_EDITOR must stay off for customers in Japan.
Pull request 5123 waits for a second review.
The sensor reports E-17 when the filter is clogged.
My serial number is SN-8842-KX-19, the label is hard to read.
The IBAN ends in 4470, and the money never came.
Flight LH1789 now leaves from gate B22.
Room 3.041 is taken until noon, use 3.014 instead.
Invoice 2026-0093 was paid twice, invoice 2026-0039 never.
The contract with Brightwater GmbH ends in September.
Ms. Nakagawa from the Osaka office will call you on Thursday.
Professor Achterberg wants the slides two days before the talk.
Tell Siobhan that the keys are under the flower pot.
Our contact at Pemberton & Sons is called Rhys.
The nurse's name was Ifeoma, she was very kind.
I met Bartholomew at the conference in Ghent.
My little brother broke his arm on the trampoline.
She has been coughing for three weeks, and the syrup does not help.
I get dizzy when I stand up too fast.
I stopped smoking on New Year's Eve.
My glasses are too weak by now, I hold every book at arm's length.
The stairs to the platform are too steep for the pram.
We missed the connection in Cologne and slept in the waiting hall.
The suitcase came out of the aeroplane without its wheels.
The hotel gave our room away, although we had a confirmation.
The beach was full of plastic bottles and old nets.
I burned the rice again, the whole kitchen smells.
Bread without yeast rises with soda and sour milk.
We have far too many courgettes, does anybody want some?
My mother keeps calling me at work.
He proposed to me on top of the tower.
We are getting a divorce lawyer, it is over.
My father forgets my name more and more often.
I feel alone since the children have left home.
The teacher says that he cannot sit still for five minutes.
Her marks got better after she changed schools.
The kindergarten has no place for us before autumn.
I would rather work four days a week for less pay.
Nobody told me that the office moves to the suburbs.
My application was turned down because I have no degree.
The customer wants to pay in three instalments.
The price went up by ten percent without a letter.
I gave the wrong size, the shoes pinch.
The jacket lost its colour in the first wash.
The remote control does nothing, and the batteries are new.
The fridge hums so loudly that we close the door at night.
A pipe burst, and the water stands in the hallway.
The lift has been out of order since Monday, and I am on crutches.
Mice have eaten through the bag of flour.
The moths got into my winter sweaters.
The hedge must be cut before the birds begin to nest.
A storm broke the apple tree in two.
Please read it to me, my eyes are tired.
Make the letters larger, I cannot read this.
Do not save what I tell you now.
Switch to German, please.
I need a poem for a colleague who retires.
The translation sounds stiff, make it warmer.
Count how many words the essay has.
The chart needs a legend and darker lines.
Who won the match last night?
The mayor resigned after the report about the bridge.
The museum gave the masks back to Benin.
Scientists taught a parrot to ask for its friends.
The comet can be seen with the naked eye until Sunday.
Whales sleep upright, close to the surface.""".splitlines()

MESSAGES += [
    line
    for number in range(1, 31)
    for line in (
        f"Order {8800 + 37 * number % 97}-{'ACDE'[number % 4]} is on its way.",
        f"Ticket INC00{12400 + 17 * number} was moved to the next shift.",
        f"Version 2.{number}.{number % 5} is on the test machine.",
        f"The import failed again with ORA-{600 + 13 * number:05}.",
        f"The app shows ERR_{'ABCDEFGHIJ'[number % 10]}_{number} on start.",
    )
]

# The same for the other things that have names of their own: in a real history each is one of hundreds.
ALIKE = [
    line
    for number in range(1, 31)
    for line in (
        f"The pod payments-{number * 7919 % 65536:04x} was restarted by the rollout.",
        f"Pull request {5100 + 7 * number} was merged after the second review.",
        f"Invoice 2026-{100 + number:04} was paid in time.",
        f"Flight LH{1700 + 11 * number} leaves from gate B{number}.",
        f"CVE-2026-{1100 + 13 * number} does not concern us.",
        f"The sensor in hall {number} reports E-{20 + number}.",
        f"Migration {50 + number:04}_add_column ran without an error.",
        f"Room 3.{100 + number:03} is free in the afternoon.",
    )
]
MESSAGES += ALIKE

QUESTIONS: dict[str, list[str]] = {
    "the package did not get here": ["My parcel still has not arrived"],
    "reimbursement for faulty goods": ["I would like my money back"],
    "item damaged in transport": ["Your driver threw the box"],
    "billed two times": ["I was charged twice"],
    "end my annual membership": ["How do I cancel my yearly plan"],
    "dietary restrictions": ["My wife is vegetarian", "The doctor said that I should avoid dairy", "I am allergic"],
    "insomnia": ["I have trouble falling asleep"],
    "hypertension": ["My blood pressure"],
    "signs of depression": ["Nothing gives me joy"],
    "back pain": ["The physiotherapist showed me"],
    "automobile trouble": ["The battery of the car", "Somebody scratched my vehicle", "The brakes squeal"],
    "quitting a job": ["I handed in my notice"],
    "employees fired": ["Two colleagues were laid off"],
    "home loan refused": ["The bank turned down"],
    "saving for retirement": ["I want to put a little aside"],
    "pet vaccination": ["The vet gave the dog"],
    "newborn animals": ["Our cat had five kittens"],
    "noise from next door": ["The neighbours play the drums"],
    "hacked account": ["Somebody logged in to my account"],
    "cannot sign in any more": ["My password must be reset"],
    "airport transfer": ["We will land in Lisbon"],
    "identity document expires": ["My passport runs out"],
    "baking went wrong": ["The cake sank"],
    "musical instrument lessons": ["I am learning to play the cello"],
    "natural disaster": ["The river burst its banks", "An earthquake woke us"],
    "climate change": ["The glacier has lost"],
    "renewable energy": ["Wind turbines"],
    "astronomy": ["The telescope showed us"],
    "restaurant reservation": ["Could you book a table"],
    "liquid damage on a computer": ["My son spilled juice"],
    "ERR_CONN_RESET": ["After the update the app crashes"],
    "ORA-00942": ["The server log says"],
    "OrderMapper": ["I get a NullPointerException"],
    "libssl": ["The build fails because"],
    "release-nightly": ["Our Jenkins job"],
    "user id guests": ["The function parse_user_id"],
    "HANSARD_CRASHES": ["Set HANSARD_CRASHES"],
    "SPRING24": ["The discount code"],
    "8841-B": ["Order 8841-B"],
    "INC0012345": ["Ticket INC0012345"],
    "2.14.3": ["Please deploy version 2.14.3"],
    "Wojciechowska": ["The meeting with Dr."],
    "Okonkwo quarter": ["Mr. Okonkwo"],
    "Mueller archive": ["Frau Müller"],
    "retry-budget": ["Use the branch feature"],
    "api.example.org": ["The certificate of"],
    # In other words.
    "keyboard does not type": ["My son spilled juice"],
    "send me proof of payment again": ["Can you send the receipt"],
    "voucher does not work": ["The discount code"],
    "where should the goods be delivered": ["Please change the delivery address", "We moved to a bigger flat"],
    "kitchen appliance defect": ["The kettle stopped heating", "The fridge hums"],
    "display problem of a notebook": ["The screen flickers"],
    "trip disrupted by bad weather": ["The flight to Oslo"],
    "travel sickness": ["I prefer a window seat"],
    "entry permit for a foreign country": ["Do I need a visa"],
    "long distance running": ["I ran my first marathon"],
    "tooth extraction": ["The dentist had to pull"],
    "sick plants": ["The tomatoes on the balcony"],
    "drought": ["It has not rained"],
    "water coming through the ceiling": ["The roof leaks"],
    "housing costs go up": ["My landlord wants"],
    "exchange rate": ["The euro fell"],
    "job interview nerves": ["I am nervous about"],
    "praise from the manager": ["My boss praised"],
    "theft": ["My phone was stolen"],
    "smart home command": ["Turn the lights"],
    "birthday of an elderly relative": ["Grandma turns ninety"],
    "pregnancy": ["The baby kicks"],
    "mourning a pet": ["I was very sad"],
    "angry about losing a place": ["I was furious"],
    "bone fracture": ["My little brother broke"],
    "persistent cough": ["She has been coughing"],
    "giving up cigarettes": ["I stopped smoking"],
    "poor eyesight": ["My glasses are too weak", "Make the letters larger"],
    "missed train": ["We missed the connection"],
    "damaged luggage": ["The suitcase came out"],
    "overbooked accommodation": ["The hotel gave our room"],
    "pollution of the sea": ["The beach was full"],
    "marriage ends": ["The divorce was final", "We are getting a divorce"],
    "engagement": ["He proposed"],
    "dementia": ["My father forgets"],
    "loneliness": ["My best friend moved", "I feel alone"],
    "child has trouble concentrating": ["The teacher says"],
    "day care": ["The kindergarten has"],
    "part-time": ["I would rather work four days"],
    "rejected for lack of education": ["My application was turned down"],
    "pay in parts": ["The customer wants to pay"],
    "clothes do not fit": ["I gave the wrong size"],
    "flooded apartment": ["A pipe burst"],
    "elevator broken": ["The lift has been"],
    "rodents": ["Mice have eaten"],
    "off the record": ["Do not save"],
    "politician steps down": ["The mayor resigned"],
    "stolen art returned": ["The museum gave the masks"],
    "sea mammals": ["Whales sleep"],
    # By the exact name of a thing, alone or with words around it.
    "CrashLoopBackOff": ["The pod payments-7f9c"],
    "payments-7f9c": ["The pod payments-7f9c"],
    "MOVED 3999": ["Redis answers MOVED"],
    "signature_verification_failed": ["The webhook of Stripe"],
    "db-eu-3 backup": ["Our nightly backup"],
    "get_window max_tokens": ["get_window() cuts"],
    "/v2/status": ["The health check of"],
    "unhashable type": ["TypeError: unhashable"],
    "cache_key": ["TypeError: unhashable"],
    "0042_add_region": ["Rollback of migration"],
    "quota atlas-prod": ["Please raise the quota"],
    "CVE-2026-1188": ["CVE-2026-1188"],
    "ENABLE_NEW_EDITOR": ["The flag ENABLE_NEW_EDITOR"],
    "what about pull request 5123": ["Pull request 5123"],
    "error E-17": ["The sensor reports E-17"],
    "SN-8842-KX-19": ["My serial number"],
    "LH1789": ["Flight LH1789"],
    "room 3.014": ["Room 3.041 is taken"],
    "invoice 2026-0039": ["Invoice 2026-0093"],
    "Brightwater": ["The contract with Brightwater"],
    "Nakagawa": ["Ms. Nakagawa"],
    "when does Professor Achterberg need the slides": ["Professor Achterberg"],
    "Siobhan keys": ["Tell Siobhan"],
    "Pemberton": ["Our contact at Pemberton"],
    "Ifeoma": ["The nurse's name"],
    "who did I meet in Ghent": ["I met Bartholomew"],
    "8814-B": ["Order 8814-B"],
    "INC0012354": ["Ticket INC0012354"],
    "which version broke the export": ["Version 2.13.4"],
    "hiking knees": ["The hike took"],
    "chemistry chapters": ["The exam covers"],
    "Mahler": ["The orchestra played"],
}


def answers(question: str) -> list[str]:
    """The whole messages that answer it."""
    return [next(each for each in MESSAGES if each.startswith(start)) for start in QUESTIONS[question]]
