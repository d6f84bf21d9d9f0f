package dev.edgedec.core

import io.kotest.property.Arb
import io.kotest.property.PropTestConfig
import io.kotest.property.RandomSource
import io.kotest.property.arbitrary.arbitrary
import io.kotest.property.checkAll
import kotlin.random.Random
import kotlinx.coroutines.runBlocking

private const val SEED = 20261125L

/** Returns examples that [make] makes of random numbers. */
fun <A> examples(make: (Random) -> A): Arb<A> = arbitrary { make(it.random) }

/** Checks a property on random examples, the same ones in every run. */
fun <A> holds(examples: Arb<A>, times: Int = 200, property: (A) -> Unit) {
    runBlocking { checkAll(PropTestConfig(seed = SEED, iterations = times), examples) { property(it) } }
}

/** Returns whether an example breaks a property: some must, where what it is about is a broken twin. */
fun <A> isBroken(examples: Arb<A>, times: Int = 200, property: (A) -> Unit): Boolean =
    examples.samples(RandomSource.seeded(SEED)).take(times).any { runCatching { property(it.value) }.isFailure }

fun Random.pick(vararg choices: Double): Double = choices[nextInt(choices.size)]

/** Letters that [FakeStream] makes. */
fun Random.letters(count: Int): String = String(CharArray(count) { 'a' + nextInt(4) })

fun Random.tokens(count: Int, vocabSize: Int): IntArray = IntArray(count) { nextInt(vocabSize) }
