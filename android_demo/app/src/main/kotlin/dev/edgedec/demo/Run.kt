package dev.edgedec.demo

import dev.edgedec.core.Drafter
import dev.edgedec.core.Request

/** A text or a race that is being decoded. */
interface Run {
    /** Whether the decoder has nothing more to say. */
    val ended: Boolean

    /** Returns the screen with what the decoder has said since the last call. */
    fun advance(screen: Screen): Screen

    /** Returns the screen with [ending] for a text that was cut off; the decoder is not asked any more. */
    fun abandon(screen: Screen, ending: Ending): Screen
}

/** One text: the last turn of the screen. */
class TextRun(host: Host, request: Request, clock: () -> Long) : Run {
    private val feed = Feed(clock)
    override var ended = false
        private set

    init {
        host.generate(request, feed)
    }

    override fun advance(screen: Screen): Screen {
        val news = feed.take()
        val turn = screen.turns.last()
        val answer = turn.answer + news
        ended = answer.ending != null
        return screen.copy(turns = screen.turns.dropLast(1) + turn.copy(answer = answer), error = news.error ?: screen.error)
    }

    override fun abandon(screen: Screen, ending: Ending): Screen {
        val known = advance(screen)
        val turn = known.turns.last()
        return known.copy(turns = known.turns.dropLast(1) + turn.copy(answer = turn.answer.cutOff(ending)))
    }
}

/** The same request twice, one after the other, so that neither takes time from the other. */
class RaceRun(private val host: Host, private val request: Request, private val clock: () -> Long) : Run {
    private var feed = Feed(clock)
    override var ended = false
        private set

    init {
        host.generate(request.copy(drafter = Drafter.NONE), feed)
    }

    override fun advance(screen: Screen): Screen {
        val known = take(screen)
        val race = known.race ?: return known
        val goesOn = race.drafted == null && race.plain.complete && screen.shown != Shown.STOPPING
        if (goesOn) {
            feed = Feed(clock)
            host.generate(request, feed)
            return known.copy(race = race.copy(drafted = Answer()))
        }
        ended = race.current.ending != null
        return known
    }

    override fun abandon(screen: Screen, ending: Ending): Screen {
        val known = take(screen)
        return known.copy(race = known.race?.let { it.withCurrent(it.current.cutOff(ending)) })
    }

    private fun take(screen: Screen): Screen {
        val news = feed.take()
        val race = screen.race?.let { it.withCurrent(it.current + news) }
        return screen.copy(race = race, error = news.error ?: screen.error)
    }
}
